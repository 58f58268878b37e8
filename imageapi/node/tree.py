"""Removing directory trees. Not shutil: importing that loads three compression libraries, which a
node does not need."""

from __future__ import annotations

import os
from pathlib import Path


def remove(top: Path) -> None:
    """Deletes a tree; one that is not there is fine. Never follows a symbolic link. Raises
    OSError."""
    for directory, directories, files in os.walk(top, topdown=False):
        for name in files:
            Path(directory, name).unlink()
        for name in directories:
            path = Path(directory, name)
            if path.is_symlink():
                path.unlink()
            else:
                path.rmdir()
    if top.is_dir():
        top.rmdir()
