"""A node's BMC from inside the machine: what it says of itself, and how it is set up."""
