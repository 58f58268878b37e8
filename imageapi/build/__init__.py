"""Builds system images: a directory tree, or a Dockerfile, to a squashfs file; the same bytes for
the same tree."""
