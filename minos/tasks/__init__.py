"""What a site has done on each node before its images start: the key `uinit` of the inventory. On
the head."""
