"""Whether containers do their work."""
