"""What a Dockerfile needs of buildah: here-documents, which it knows since version 1.33. An earlier
one takes each line of the document for an instruction, and says so in words that lead nowhere.

Source: BuildKit's Dockerfile reference ("Here-Documents").
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from imageapi.build.tools import PATH
from layercake.kraken.errors import InputError

SINCE = (1, 33)
_WITH_DOCUMENTS = ("RUN", "COPY", "ADD")
_START = re.compile(r"""(?<!\S)\d*<<-?(["']?)([A-Za-z_][\w.-]*)\1(?=\s|$)""", re.ASCII)
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s")
_VERSION = re.compile(r"buildah version (\d+)\.(\d+)", re.ASCII)


def here_document(text: str) -> tuple[int, str]:
    """The line of a Dockerfile in which its first here-document begins, and what that line says; 0
    and "" if it has none."""
    instruction = ""
    goes_on = False
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        if not goes_on:
            match = _INSTRUCTION.match(f"{plain} ")
            instruction = match[1].upper() if match else ""
        if instruction in _WITH_DOCUMENTS and _START.search(plain):
            return number, plain
        goes_on = plain.endswith(("\\", "`"))
    return 0, ""


def version_of(said: str) -> tuple[int, int] | None:
    """The version of buildah by what `buildah --version` says, None for what is not understood."""
    match = _VERSION.search(said)
    return (int(match[1]), int(match[2])) if match else None


def check(path: Path, said: str | None = None) -> None:
    """Refuses a Dockerfile that this machine's buildah cannot build. `said` is what `buildah
    --version` says; it is asked if that is not given. Raises InputError."""
    line, text = here_document(path.read_text(errors="replace"))
    if not line:
        return
    version = version_of(_ask_version() if said is None else said)
    if version is None or version >= SINCE:
        return
    raise InputError(
        f"cannot build {path}: line {line} begins a here-document ({text[:80]}), and buildah "
        f"{version[0]}.{version[1]} knows none",
        hint=f"buildah knows them since {SINCE[0]}.{SINCE[1]}; with this one write a file beside "
        "the Dockerfile and COPY it, or RUN printf '...' > FILE",
    )


def _ask_version() -> str:
    """What buildah says of itself, "" if it cannot be asked: then the build says why."""
    try:
        return subprocess.run(
            ["buildah", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=30,
            env={"PATH": PATH},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
