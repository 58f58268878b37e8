"""The head's image store."""
