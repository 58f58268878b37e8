"""Layercake: one service on a head node that takes a rack from cold metal to running system
images."""

__version__ = "0.2.0"
