"""What is known of block devices, whoever asks: the agent, which uses them, and a release, which
erases them."""
