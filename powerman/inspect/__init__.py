"""What a person wants to see of BMCs before anything is done with them: of those of the nodes, and
at addresses."""
