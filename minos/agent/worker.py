"""Carries out the node's own mutations, one at a time, on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from layercake.kraken.errors import LayercakeError, OperationFailed


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at a mutation."""

    mutation: str
    attempt: int
    stop: threading.Event = field(default_factory=threading.Event, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """How an attempt ended: what was found, or why it failed."""

    job: Job
    found: Mapping[str, str]
    error: str = ""


Handler = Callable[[Callable[[], bool]], Mapping[str, str]]
"""(interrupted) -> what was discovered. Raises LayercakeError if the attempt failed."""


class Worker:
    """The thread and its queue. `report` is called from the thread."""

    def __init__(self, handlers: Mapping[str, Handler], report: Callable[[Done], None]) -> None:
        self._handlers = handlers
        self._report = report
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.current: Job | None = None
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    def submit(self, mutation: str, attempt: int) -> None:
        """Queues an attempt behind the one under way."""
        self.current = Job(mutation, attempt)
        self._queue.put(self.current)

    def interrupt(self) -> None:
        """Asks the newest attempt to give up; it reports all the same."""
        if self.current:
            self.current.stop.set()

    def _run(self) -> None:
        while True:
            job = self._queue.get()
            self._report(self._carry_out(job))

    def _carry_out(self, job: Job) -> Done:
        try:
            if job.stop.is_set():
                return Done(job, {}, "it was called off")
            if job.mutation not in self._handlers:
                raise OperationFailed(
                    f"cannot {job.mutation}: this node's minOS does not have it",
                    hint="rebuild minOS on the head, then boot the node again",
                )
            return Done(job, self._handlers[job.mutation](job.stop.is_set))
        except LayercakeError as error:
            return Done(job, {}, str(error))
        # A programmer's mistake must not end the thread; it is reported in full.
        except Exception as error:  # noqa: BLE001
            import traceback  # only now: it is slow to import, and this should never happen

            return Done(job, {}, f"{error!r}\n{traceback.format_exc(limit=-6)}")
