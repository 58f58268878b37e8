"""Lists of many nodes, and queries over them."""
