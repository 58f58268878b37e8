"""Who may do what, and who did: callers, their tokens, the audit log."""
