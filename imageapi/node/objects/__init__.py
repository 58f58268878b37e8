"""Attach, mount and container objects: what the head asks a node for beside its image set."""
