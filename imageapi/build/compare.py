"""What is different between two image files, read by a process of its own: many GB are not to slow anybody down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from layercake.kraken.errors import OperationFailed

DIFF_S = 1800.0
"""Seconds that reading two images may take."""


async def compare(files: list[str]) -> dict[str, Any]:
    """The packages and files that are different in the second of two files. Raises OperationFailed."""
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", sys.executable, "-m", "imageapi.build.contents", *files, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE)
    try:
        out, _ = await asyncio.wait_for(process.communicate(), DIFF_S)
    except TimeoutError:
        raise OperationFailed(f"cannot compare the images: it took longer than {DIFF_S:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        found = json.loads(out)
    except ValueError:
        raise OperationFailed(f"cannot compare the images: the reader ended with status {process.returncode}",
                              hint="see the head's log") from None
    if "error" in found:
        raise OperationFailed(str(found["error"]), hint=str(found["hint"]))
    return dict(found)
