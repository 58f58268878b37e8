"""HTTP for a node: a small client for the head and the image server, and a small server for the
node's own API."""
