"""What the head offers its features, and what a feature is."""
