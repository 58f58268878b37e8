"""The files that make one node different from the next: what the inventory says of them, rendered
for each node."""
