"""Writes what was changed on the head into the inventory file, with its comments and its order."""
