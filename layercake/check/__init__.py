"""`layercake check`: what of a site is not as it has to be, before the first boot and whenever. It
only looks. table.py names all checks."""
