"""The node's interfaces: what is wanted of them, what there is, and what leads from one to the
other (minos/inventory.py)."""
