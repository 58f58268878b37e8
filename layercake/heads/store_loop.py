"""An event loop in a thread of its own, for what must go on while the head's own loop is busy, or
waits for what it has written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from layercake.moduleapi.event_loop.tasks import cancel_all

T = TypeVar("T")


class StoreLoop:
    """The loop; it runs until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="heads' store", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins work there; to be waited for by any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits work there."""
        return await asyncio.wrap_future(self.begin(work))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for work there, in a thread that is not the loop's."""
        return self.begin(work).result()

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Ends what is under way there, does what comes last, and ends the thread."""

        async def end() -> None:
            await cancel_all(asyncio.all_tasks() - {asyncio.current_task()})
            await last
            await self._loop.shutdown_asyncgens()

        self.begin(end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
