"""The database: tables and rows, what is written and when, the history of events, its health."""
