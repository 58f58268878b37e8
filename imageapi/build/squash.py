"""A directory tree as a squashfs file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from imageapi.build.tools import PATH, Limits, run

_DONE = re.compile(r"\] (\d+)/(\d+)\s+\d+%")
"""mksquashfs' progress bar: [=====/     ] 17/300   5%"""


def squash(
    tree: Path,
    out: Path,
    *,
    level: int = 9,
    epoch: int = 0,
    xattrs: bool = True,
    all_root: bool = False,
    exclude: Sequence[str] = (),
    progress: Callable[[float], None] = lambda done: None,
    limits: Limits | None = None,
) -> Path:
    """Packs a tree with zstd. Reproducible: all times are `epoch`; owners and attributes are kept,
    a system image needs them.

    `exclude` are wildcards of what is left out, relative to the tree; `progress` gets how much is
    done (0 to 1).
    """

    def line(text: str) -> None:
        if (match := _DONE.search(text)) and int(match[2]):
            progress(min(1.0, int(match[1]) / int(match[2])))

    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.unlink(missing_ok=True)
    options = [*(() if xattrs else ("-no-xattrs",)), *(("-all-root",) if all_root else ())]
    left_out = ["-wildcards", "-e", *exclude] if exclude else []
    try:
        run(
            [
                "mksquashfs",
                str(tree),
                str(partial),
                "-noappend",
                "-quiet",
                "-mkfs-time",
                str(epoch),
                "-all-time",
                str(epoch),
                "-comp",
                "zstd",
                "-Xcompression-level",
                str(level),
                *options,
                *left_out,
            ],
            f"pack {out.name}",
            "squashfs-tools",
            {"PATH": PATH},
            line,
            limits,
        )
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return out
