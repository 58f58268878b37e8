"""An event loop in a thread of its own, for what must go on while the head's own loop is busy, or
waits for what it has written."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.tasks import cancel_all

log = logging.getLogger("layercake.heads")
T = TypeVar("T")


async def repeat(
    work: Callable[[], Awaitable[None]], pause_s: Callable[[], float], to: str
) -> None:
    """Does something again and again, until it is cancelled, whatever becomes of it. The log says
    why it could not, once for each reason; `to` are the words for what is done."""
    trouble = ""
    while True:
        try:
            await work()
            trouble = ""
        except (LayercakeError, OSError) as error:
            if repr(error) != trouble:
                log.warning("cannot %s: %s", to, error)
            trouble = repr(error)
        except Exception as error:  # a fault of ours: the rest of the head goes on
            if repr(error) != trouble:
                log.exception("cannot %s", to)
            trouble = repr(error)
        await asyncio.sleep(pause_s())


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

    def run(self, work: Coroutine[Any, Any, Any], to: str) -> None:
        """Begins what goes on until the loop stops. Should it fail, the log says so; `to` are the
        words for what it does."""
        self.begin(work).add_done_callback(partial(_note_end, to))

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


def _note_end(to: str, done: Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("this head has stopped to %s", to, exc_info=error)
