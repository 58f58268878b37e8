"""Builds system images: a directory tree to a squashfs file, the same bytes for the same tree."""

from imageapi.build.images import build_plain_image, build_systemd_image
from imageapi.build.services import build_slurm_image, build_web_image
from imageapi.build.squash import squash

__all__ = ["build_plain_image", "build_slurm_image", "build_systemd_image", "build_web_image", "squash"]
