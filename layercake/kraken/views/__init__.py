"""What people are shown of the graph, and of one node in it."""
