"""What firmware, machine and head said of one node, in one archive."""
