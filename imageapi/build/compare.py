"""What is in image files, and what is different between two, read by a process of its own: many GB
are not to slow anybody down."""

from __future__ import annotations

from typing import Any

from layercake.base.text import parse_json
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob

COMPARING = Bounds(seconds=900.0, memory=2 << 30, answer=8 << 20)
"""What comparing two images may take. Two of 1 GB take some 20 s."""


async def compare(aside: SandboxedJob, files: list[str]) -> dict[str, Any]:
    """The packages and files that are different in the second of two files. Raises OperationFailed.
    Within a turn."""
    return await _run_job(aside, "imageapi.build.contents", *files)


async def describe(aside: SandboxedJob, file: str) -> dict[str, Any]:
    """What a file is made of (sbom.py). Raises OperationFailed. Within a turn."""
    return await _run_job(aside, "imageapi.build.sbom", file)


async def _run_job(aside: SandboxedJob, module: str, *files: str) -> dict[str, Any]:
    result = parse_json(await aside.run(module, *files))
    if "error" in result:
        raise OperationFailed(str(result["error"]), hint=str(result["hint"]))
    return dict(result)
