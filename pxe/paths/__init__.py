"""The boot paths: what a boot consists of (order.py), and how each of them says it, one file for
each."""
