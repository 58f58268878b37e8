"""What runs on a node: its image set, and the rooms that it stands on."""
