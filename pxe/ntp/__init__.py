"""Time for the nodes: the head answers SNTP."""
