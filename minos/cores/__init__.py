"""On which cores of a node its agent runs: the key `minos` of the inventory. On the head."""
