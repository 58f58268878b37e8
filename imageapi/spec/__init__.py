"""What head and node both know of images: names, descriptions and their checks, states. It ships to
nodes."""
