"""What is known of machines: their hardware as they report it, where they are cabled, and which of
them no inventory knows."""
