"""The boot paths: what a boot consists of (boot_spec.py), and how each of them says it, one file
for each."""
