"""`layercake init`, run as an administrator does, by every rack here that has a head of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headclient import HeadRunError

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300.0


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of sections by their dotted names: what is not said in a section stays as it is."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= (
            {f"{name}.{k}": v for k, v in value.items()}
            if isinstance(value, Mapping)
            else {name: value}
        )
    return found


def init(
    data: Path,
    inside: Sequence[str],
    settings: Mapping[str, Any],
    *,
    interface: str = "br0",
    cache: Path | None = None,
    python: str = sys.executable,
    profile: str = "virtual",
    disktools: bool = True,
) -> None:
    """Makes a data directory. `inside` is the command that enters the head's network, `settings`
    are keys of config.yaml, dotted. With `cache`, which has the kernel package, it builds what
    nodes boot, by `profile`, with the programs for disks or without. Raises HeadRunError with what
    it said."""
    boot = ["--no-boot"] if cache is None else ["--cache", str(cache), "--profile", profile]
    if not disktools:
        boot.append("--no-disktools")
    words = ["--data-dir", str(data), "--interface", interface, "--yes", *boot]
    for name, value in settings.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    done = subprocess.run(
        [*inside, python, "-m", "layercake.cli.main", "init", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise HeadRunError(f"layercake init: exit {done.returncode}\n{done.stdout}{done.stderr}")
