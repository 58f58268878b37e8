"""What people can do, one file per noun. Each operation checks everything first, then changes the desired state."""
