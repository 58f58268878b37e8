"""The datagrams of nodes: where they come in, and what the same one again costs."""
