"""Dynamic addresses, for guests: machines that are not in the inventory, and get an address of
their network and nothing to boot, unless the network allows that they are discovered."""
