"""Erasing a machine between two of its users: its disks, by their own means where they have some,
and what its TPM keeps."""
