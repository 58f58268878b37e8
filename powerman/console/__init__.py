"""Consoles of machines: how they are read, kept and shared."""
