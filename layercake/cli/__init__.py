"""The command line: a client of the head's API, one file per noun. `main` is the entry point."""
