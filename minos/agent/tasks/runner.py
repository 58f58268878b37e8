"""The site's tasks on this node: done once in each boot, in order, before the first image starts.

RUN/tasks.json      which were done in this boot, for an agent that starts again
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from layercake.base.files import read_json, write_json
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import OperationFailed
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Config, Session
from minos.agent.tasks.task import Task, applies, do, parse
from minos.events import TASK_DONE, TASK_FAILED

RECORD = "tasks.json"
RETRY_FIRST = 1.0
RETRY_MAX = 15.0


class TaskRunner:
    """`pause` waits some seconds between two attempts."""

    def __init__(
        self,
        config: Config,
        event: EventSink,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._event = event
        self._clock = clock
        self._pause = pause
        self._traits: Mapping[str, str] = {}
        self._file = config.run / RECORD
        self._turn = threading.Lock()
        self._tasks: tuple[Task, ...] = ()
        self._broken = ""
        stored = read_json(self._file)
        known = isinstance(stored, dict) and stored.get("boot") == config.boot_id
        self._done: set[str] = (
            set(stored.get("done", ())) if known and stored is not None else set()
        )

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Takes the tasks over. What is new of them counts in the next boot, if the first image has
        been started."""
        self._traits = session.traits
        section = document.get("uinit")
        try:
            self._tasks = tuple(map(parse, section)) if isinstance(section, list) else ()
            self._broken = ""
        except OperationFailed as error:
            self._broken = str(error)

    def finish(self) -> None:
        """Does what is not done yet. Raises OperationFailed if the images have to wait for a task
        that has failed."""
        with self._turn:
            if self._broken:
                raise OperationFailed(self._broken)
            if not self._tasks or "" in self._done:
                return
            for task in self._tasks:
                if task.name not in self._done:
                    self._bring_about(task)
                    self._note(task.name)
            self._note("")  # all: what comes later counts in the next boot

    def _note(self, name: str) -> None:
        self._done.add(name)
        write_json(self._file, {"boot": self._config.boot_id, "done": sorted(self._done)})

    def _bring_about(self, task: Task) -> None:
        if not applies(task, self._traits):
            return
        began = self._clock()
        failures = 0
        while True:
            try:
                do(task, {"LAYERCAKE_NODE": self._config.name}, self._clock)
                self._event(
                    TASK_DONE,
                    f"task {task.name} is done, in {self._clock() - began:.1f} s",
                    task=task.name,
                )
                return
            except OperationFailed as error:
                failures += 1
                if failures <= task.retries:
                    self._pause(backoff(failures, RETRY_FIRST, RETRY_MAX))
                    continue
                times = f" {failures} times" if failures > 1 else ""
                then = "the images wait" if task.holds else "the images start all the same"
                self._event(
                    TASK_FAILED,
                    f"task {task.name} has failed{times}, {then}: {error}",
                    task=task.name,
                )
                if task.holds:
                    raise OperationFailed(
                        f"task {task.name} of the site has failed: {error}"
                    ) from None
                return
