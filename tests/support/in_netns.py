"""Runs code in a network namespace: in a thread of its own, since a thread can be in another
namespace than its process."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def in_netns(namespace: str, body: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of `body()`, run by an event loop inside the namespace. What it raises comes
    through."""

    def inside() -> Result:
        handle = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
        try:
            if _LIBC.setns(handle, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(handle)
        return asyncio.run(body())

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()


def in_new_netns(body: Callable[[], Result]) -> Result:
    """The result of `body()` inside a namespace of its own, which ends with it; it has nothing but
    a loopback that is down. What it raises comes through."""

    def inside() -> Result:
        if _LIBC.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        return body()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()
