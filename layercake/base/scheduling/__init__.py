"""When things are due, on which cores they run, and at which priority."""
