"""What images that ask as clouds answer are told of their node, at 169.254.169.254."""
