"""A node's disks as the inventory has them: the key `disks`, and what the engine knows of them. On
the head."""
