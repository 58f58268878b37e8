"""The bond with the nodes: what agents call, what calls agents, state sync, joining."""
