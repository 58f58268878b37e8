"""The state engine: pure, standard library only, no I/O. It runs on the head and on the nodes."""
