"""The logs of consoles, which followers have as the leader writes them."""
