"""The node's own disks: what is on them, and what the inventory wants of them. Standard library
only."""
