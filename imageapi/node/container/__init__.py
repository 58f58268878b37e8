"""One container: made, started, stopped and looked into by crun."""
