"""Releases of nodes between users: each step that is seen, and the evidence that is kept."""
