"""What the site has done on this node before its images start."""
