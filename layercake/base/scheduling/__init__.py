"""On which cores, and at which priority, threads run."""
