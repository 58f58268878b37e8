"""One node of an inventory, from what its layers say: merged, its modules' parts read, and checked
against the other nodes and the site."""
