"""The TPM of a node (TPM 2.0, by its kernel's resource manager): who the machine is, and what it
has booted. On the node."""
