"""The TPMs of nodes, on the head: what proves who a machine is and what it has booted, and what was
recorded of it."""
