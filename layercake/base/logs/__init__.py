"""The log of a process on the head: bounded, and to the journal as fields."""
