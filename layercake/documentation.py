"""Where the documentation is on this machine, and how its pages are named: in the terminal, over
HTTP, in a file.

A page is named by its path below docs/ without the ending: `howto/consoles`. What prints a page's
name has it from here, so that whoever reads it can follow it as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

INSTALLED = Path("/usr/share/layercake/docs")
"""Where the Debian package has the pages, and in `html` the site. Not in /usr/share/doc, which a
machine may lack."""
CLONE = Path(__file__).resolve().parents[1]
URL = "/docs/"
"""Where the head serves the pages."""
INDEX = "index"
_TITLE = re.compile(r"^# (.+)$", re.M)


def pages_directory() -> Path | None:
    """The directory with the pages as they were written; None where there is none."""
    return next(
        (
            place
            for place in (CLONE / "docs", INSTALLED / "pages")
            if (place / f"{INDEX}.md").is_file()
        ),
        None,
    )


def site_directory() -> Path | None:
    """The directory with the pages as a site; None where none was built."""
    cloned = (CLONE / "docs" / f"{INDEX}.md").is_file()
    site = CLONE / "build/docs" if cloned else INSTALLED / "html"
    return site if (site / f"{INDEX}.html").is_file() else None


def markdown_files(directory: Path) -> Mapping[str, Path]:
    """The file of each page in a directory, by the page's name, in the order of the names."""
    return {
        path.relative_to(directory).with_suffix("").as_posix(): path
        for path in sorted(directory.rglob("*.md"))
        if path.is_file()
    }


def titles(directory: Path) -> Mapping[str, str]:
    """The title of each page in a directory, by its name, in the order of the names."""
    found = {}
    for name, path in markdown_files(directory).items():
        title = _TITLE.search(path.read_text())
        found[name] = title[1] if title else name
    return found


def howto(page: str) -> str:
    """The name of a how-to page."""
    return f"howto/{page}"


def command(page: str) -> str:
    """What a person types to read a page."""
    return f"layercake docs {page}"
