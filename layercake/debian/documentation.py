"""The documentation in the package: the pages for `layercake docs`, and the site that the head
serves."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from layercake.debian.environment import ROOT, run
from layercake.documentation import INSTALLED

PLACE = str(INSTALLED.relative_to("/"))
_NOT_SERVED = (".buildinfo", "objects.inv", "*.map")
"""What Sphinx writes for itself and for other builds."""


def add(tree: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Puts pages and site into a package's tree, with links where people look for them: README.md
    and CHANGELOG.md there name `docs/...`. Raises OperationFailed.
    """
    place = tree / PLACE
    pages = place / "pages"
    for path in sorted((ROOT / "docs").rglob("*.md")):
        target = pages / path.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    site = place / "html"
    run(
        [
            sys.executable,
            "-B",
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "-d",
            str(scratch / "doctrees"),
            str(ROOT / "docs"),
            str(site),
        ],
        environment,
    )
    for pattern in _NOT_SERVED:
        for path in site.rglob(pattern):
            path.unlink()
    documents = tree / "usr/share/doc/layercake"
    documents.mkdir(parents=True, exist_ok=True)
    for name, target in (("html", site), ("docs", pages)):
        (documents / name).symlink_to(os.path.relpath(target, documents))
