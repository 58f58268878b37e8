"""What is in the image store's past and inside its images, and getting rid of what nobody needs: for people."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from imageapi.store.store import Image, Version
from layercake.head.head import Head
from layercake.kraken.errors import InputError, OperationFailed

DIFF_S = 1800.0
"""Seconds that reading two images may take."""


def versions(image: Image) -> list[Version]:
    """What a name points to and pointed to, newest first."""
    return [Version(image.digest, image.size, image.created), *reversed(image.history)]


def history(head: Head, name: str) -> dict[str, Any]:
    """The versions of a name: when each was added, who wants it, whether its content is still there. Raises InputError."""
    image = head.images.get(name)
    found = []
    for version in versions(image):
        wanted = sorted(r.name for r in head.store if any(i.digest == version.digest for i in r.wanted))
        found.append({"digest": version.digest, "size": version.size, "created": version.created,
                      "kept": head.images.has(version.digest), "used_by": wanted})
    return {"name": name, "versions": found}


def find(head: Head, text: str) -> Version:
    """The version that NAME, or NAME@BEGINNING of a digest, means. Raises InputError."""
    name, at, start = text.partition("@")
    known = versions(head.images.get(name))
    if not at:
        return known[0]
    start = start.removeprefix("blake2b:")
    matching = {v.digest: v for v in known if start and v.digest.partition(":")[2].startswith(start)}
    if len(matching) != 1:
        raise InputError(f"cannot use {text[:120]!r}: {len(matching)} versions of {name} begin so",
                         hint=f"see `layercake image history {name}`")
    return next(iter(matching.values()))


async def prune(head: Head, in_use: set[str]) -> list[str]:
    """Deletes the contents that no name points to and nothing in `in_use` is; their digests. Raises LayercakeError."""
    gone = await asyncio.to_thread(head.images.prune, in_use)
    if gone:
        head.store.event(None, "image.pruned", f"{len(gone)} unused contents were deleted", data={"digests": gone[:100]})
    return gone


async def difference(head: Head, a: str, b: str) -> dict[str, Any]:
    """What is different in image `b`: packages and files. Raises InputError and OperationFailed.

    A process of its own reads the images, at the lowest priority: many GB are not to slow the head down.
    """
    one, two = find(head, a), find(head, b)
    answer: dict[str, Any] = {"a": {"name": a, "digest": one.digest}, "b": {"name": b, "digest": two.digest}}
    with tempfile.TemporaryDirectory(prefix="image-diff-", dir=head.images.directory) as scratch:
        files = [await asyncio.to_thread(head.images.file, v.digest, Path(scratch) / str(i)) for i, v in enumerate((one, two))]
        return answer | await _contents([str(file) for file in files])


async def _contents(files: list[str]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "imageapi.build.contents", *files, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        preexec_fn=_last_in_line)
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


def _last_in_line() -> None:
    os.nice(19)
