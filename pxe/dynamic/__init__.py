"""Guests: machines that are not in the inventory, and get an address of their network and nothing
to boot."""
