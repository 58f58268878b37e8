"""Packets of protocols that the head and the nodes speak with others."""
