"""How warm nodes are, and what is done about it."""
