"""A head without services in a loop of the target's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.world import World, opened


@contextlib.contextmanager
def running(directory: Path) -> Iterator[tuple[asyncio.AbstractEventLoop, World]]:
    """The loop, and a head with two nodes."""
    loop, stack = asyncio.new_event_loop(), contextlib.AsyncExitStack()
    try:
        yield loop, loop.run_until_complete(stack.enter_async_context(opened(directory)))
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()
