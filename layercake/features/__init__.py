"""The nouns of the head, one folder each."""
