"""What is told of a node's image set: each container's state, and what failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from imageapi.events import CONTAINERS, FATAL, RETRY, EventSink
from imageapi.node.imageset.plan import NO_FAILURE, Failure, view
from imageapi.node.imageset.table import Table
from layercake.base.text import count_of


class Reporter:
    """Tells by events; `event` is there for all that is told once."""

    def __init__(self, table: Table, event: EventSink, clock: Callable[[], float]) -> None:
        self.event = event
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._told: list[dict[str, Any]] = []

    def views(self) -> list[dict[str, Any]]:
        """Each image of the set with its state, health, retries and last error; what still runs
        beside it too."""
        now = self._clock()
        wanted = self._table.wanted
        instances = self._table.instances()
        newest = {i.spec.name: i for i in instances}
        names = [s.name for s in wanted]
        others = [i for i in instances if i.spec.name not in names]
        return [
            view(s, newest.get(s.name), self._table.failure_of(s.name), now) for s in wanted
        ] + [view(i.spec, i, NO_FAILURE, now) for i in others]

    def report_containers(self, again: bool = False) -> None:
        """Tells how the containers are, if that has changed or it has to be told `again`."""
        views = self.views()
        moving = ("started_s", "retry_in_s")
        steady = [{k: v for k, v in entry.items() if k not in moving} for entry in views]
        with self._lock:
            if steady == self._told and not again:
                return
            self._told = steady
        text = ", ".join(f"{c['name']} {c['health'] or c['state']}" for c in views)
        self.event(CONTAINERS, text or "no containers", containers=views)

    def failed(self, name: str, failure: Failure) -> None:
        """Tells what follows from a failure of an image."""
        if failure.fatal:
            tried = count_of(failure.count, "attempt")
            self.event(
                FATAL,
                f"image {name} is given up after {tried}: {failure.text}",
                image=name,
                attempts=failure.count,
            )
        else:
            wait = max(0.0, failure.retry_at - self._clock())
            self.event(
                RETRY,
                f"image {name}: attempt {failure.count + 1} in {wait:.0f} s",
                image=name,
                attempts=failure.count,
            )
