"""How warm this node is, by its own sensors, and how fast its processors may be."""
