"""A directory tree as a squashfs file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from layercake.kraken.errors import OperationFailed


def run(command: Sequence[str], what: str, package: str, env: dict[str, str] | None = None) -> None:
    """Runs a tool. Raises OperationFailed with its last words, or which package has it."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=env)
    except FileNotFoundError:
        raise OperationFailed(f"cannot {what}: {command[0]} is not installed", hint=f"apt-get install {package}") from None
    if done.returncode:
        raise OperationFailed(f"cannot {what}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")


def squash(tree: Path, out: Path, *, level: int = 9) -> Path:
    """Packs a tree with zstd. Reproducible: times are 0; owners and attributes are kept, a system image needs them."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.unlink(missing_ok=True)
    run(["mksquashfs", str(tree), str(partial), "-noappend", "-quiet", "-no-progress", "-mkfs-time", "0", "-all-time", "0",
         "-comp", "zstd", "-Xcompression-level", str(level)],
        f"pack {out.name}", "squashfs-tools", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    partial.replace(out)
    return out
