"""The package's copyright file, in Debian's machine-readable form (DEP-5): Layercake's own licence,
and that of each library in the package, out of what its wheel says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from email.message import Message
from importlib.metadata import Distribution, PackageMetadata
from pathlib import Path

from layercake.debian.control import contact
from layercake.debian.environment import ENVIRONMENT, ROOT, Library
from layercake.kraken.errors import OperationFailed

FORMAT = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
COMMON = {"apache license": "Apache-2.0", "gnu general public license": "GPL-2"}
"""Licences whose text Debian has in /usr/share/common-licenses, by how they begin."""
_NAMES = {
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "license :: osi approved :: apache software license": "Apache-2.0",
    "mit": "MIT",
    "bsd": "BSD-2-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "psf-2.0": "PSF-2.0",
    "gpl-2.0-only": "GPL-2.0-only",
}
"""SPDX names of what wheels say that do not say it in SPDX. dnslib's "BSD" has two clauses."""
_NOTICE = re.compile(r"^\W*((?:©|copyright (?:\(c\)|©|\d)).*)$", re.I | re.M)
_BLANK = re.compile(r"\[yyyy\]|\{yyyy\}|<year>")
_POINTER = "On Debian systems the text of this licence is in /usr/share/common-licenses/{}.\n"
_TEXT = re.compile(r"(licen[cs]e|copying|notice)", re.I)


def copyright_file(libraries: Sequence[Library], xterm: Path) -> str:
    """The file. `xterm` is the directory with xterm.js. Raises OperationFailed for a library that
    does not say its licence."""
    notice, _, text = (ROOT / "LICENSE").read_text().partition("\n\n")[2].partition("\n\n")
    return "\n".join(
        [
            f"Format: {FORMAT}\nUpstream-Name: Layercake\nUpstream-Contact: {contact()}\n",
            _paragraph(["*"], [notice], "BSD-3-Clause", text),
            *(_library(one) for one in libraries if not one.info.name.startswith("layercake-")),
            _xterm(xterm),
            *_of_the_documentation(),
        ]
    )


def _library(library: Library) -> str:
    metadata = Distribution.at(library.info).metadata
    texts = []
    notices = []
    for path in sorted(library.info.rglob("*")):
        if path.is_file() and _TEXT.search(path.name):
            text = path.read_text(errors="replace")
            common = next(
                (name for start, name in COMMON.items() if start in text[:200].lower()), ""
            )
            texts.append(_POINTER.format(common) if common else text)
            notices += [] if common == "GPL-2" else _NOTICE.findall(text)
    holders = dict.fromkeys(" ".join(line.split()) for line in notices if not _BLANK.search(line))
    patterns = [f"{ENVIRONMENT}/lib/python3*/site-packages/{name}" for name in library.files]
    return _paragraph(
        patterns,
        list(holders) or [_author(metadata)],
        _licence(metadata),
        "\n\n".join(dict.fromkeys(texts)),
    )


def _author(metadata: PackageMetadata) -> str:
    fields: Message = metadata  # type: ignore[assignment]
    return str(
        fields.get("Author") or fields.get("Author-email") or f"the authors of {metadata['Name']}"
    )


def _licence(metadata: PackageMetadata) -> str:
    """The SPDX expression of a library's licence."""
    fields: Message = metadata  # type: ignore[assignment]
    if expression := fields.get("License-Expression"):
        return str(expression)
    for text in (fields.get("License") or "", *(fields.get_all("Classifier") or [])):
        if name := _NAMES.get(" ".join(text.split()).lower()):
            return name
    raise OperationFailed(
        f"cannot write the copyright file: {metadata['Name']} does not say its licence",
        hint="look into its wheel, and name what it says in layercake/debian/copyright.py",
    )


def _xterm(place: Path) -> str:
    notices, _, text = (place / "LICENSE").read_text().partition("\n\n")
    return _paragraph(
        [f"{ENVIRONMENT}/lib/python3/site-packages/layercake/dashboard/web/xterm/*"],
        notices.splitlines(),
        "MIT",
        text,
    )


def _of_the_documentation() -> Iterator[str]:
    """What Sphinx and its theme have put into the site, by NOTICE."""
    notice = (ROOT / "NOTICE").read_text()
    sphinx = notice.partition("BSD-2-Clause\n\n")[2]
    mit = notice.partition("Permission is hereby")
    text = "Permission is hereby" + mit[2].partition("\n\n\n")[0]
    site = "usr/share/layercake/docs/html/_static"
    yield _paragraph(
        [f"{site}/styles/*", f"{site}/scripts/*"],
        ["Copyright (c) 2020 Pradyun Gedam", "Copyright (c) 2021 Pradyun Gedam"],
        "MIT",
        text,
    )
    holder, _, words = sphinx.partition("\n\n")
    yield _paragraph(
        [f"{site}/{name}" for name in ("*.js", "basic.css", "pygments.css")],
        [holder],
        "BSD-2-Clause",
        words,
    )


def _paragraph(files: Sequence[str], notices: Sequence[str], licence: str, text: str) -> str:
    lines = [line.rstrip() for line in text.strip().expandtabs().splitlines()]
    body = "".join(f" {line}\n" if line else " .\n" for line in lines)
    holders = "\n ".join(
        re.sub(r"^copyright\s*(?:\(c\)|©)?\s*", "", line.strip(), flags=re.I) for line in notices
    )
    return (
        f"Files: {f'{chr(10)} '.join(files)}\nCopyright: {holders}\n"
        f"License: {licence.replace(' AND ', ' and ').replace(' OR ', ' or ')}\n{body}"
    )
