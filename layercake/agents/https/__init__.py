"""What nodes ask of the head over TLS: the join, the desired state, and the routes of features."""
