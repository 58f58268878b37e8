"""The files that the head gives this node beside what its images bring: fetched, written, and kept
as they are wanted."""
