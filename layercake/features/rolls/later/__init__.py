"""Rolls that begin at a time."""
