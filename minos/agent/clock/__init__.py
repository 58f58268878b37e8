"""The node's clock: asked for by SNTP, and kept."""
