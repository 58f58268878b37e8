"""Makes the pages of the reference from the code; docs/generate.py writes them."""
