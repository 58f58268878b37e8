"""Keeps the agent out of the way of what computes on its node: its threads stay on the cores that
the site names (`minos.cores`), and give way to all others (SCHED_BATCH with the nice value 19,
sched(7)) while a job is BUSY on the node and nobody waits for the agent.

The loop's thread stays as it is: it takes a ten thousandth of a core, for HELLOs. It must not be
SCHED_IDLE for the others: one that holds the interpreter's lock while two processes want all of its
core gets on after seconds, or a minute, and the HELLO waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from layercake.base.scheduling.cores import format_cores, parse_cores
from layercake.base.scheduling.threads import apply_to_threads, of_parent
from minos.agent.head_link.outbox import EventSink
from minos.events import CORES_FAILED

LOWEST_NICE = 19


class Background:
    """How the agent's threads run: as its parent does, but for what is said here."""

    def __init__(self, event: EventSink) -> None:
        self._event = event
        self._cores: frozenset[int] = frozenset()
        self._gives_way = False
        self._failed = ""

    def set_desired(self, document: Mapping[str, object]) -> None:
        """Stays on the cores of a desired state, on all where it names none. Cores that the node
        does not have are reported, and left out."""
        section = document.get("minos")
        named = str(section.get("cores") or "") if isinstance(section, Mapping) else ""
        try:
            cores = parse_cores(named) if named else frozenset()
        except ValueError as error:
            cores = frozenset()
            self._fail(f"cannot keep the agent on cores {named[:100]!r}: {error}")
        else:
            self._check(cores)
        if cores != self._cores:
            self._cores = cores
            self._apply()

    def give_way(self, gives_way: bool) -> None:
        """Runs at the lowest priority, or as its parent does. Called in each round of the loop:
        threads that it has started since run as the loop's own."""
        if gives_way or self._gives_way:
            self._gives_way = gives_way
            self._apply()

    def report_again(self) -> None:
        """The head may have missed what is wrong."""
        if self._failed:
            self._event(CORES_FAILED, self._failed)

    def _check(self, cores: frozenset[int]) -> None:
        allowed = of_parent().cores
        if not cores - allowed:
            self._failed = ""
            return
        left = format_cores(cores & allowed)
        self._fail(
            f"cannot keep the agent on cores {format_cores(cores)}: this node has "
            f"{format_cores(allowed)} for it; it runs on {left or 'all of them'}"
        )

    def _fail(self, problem: str) -> None:
        if problem != self._failed:
            self._failed = problem
            self._event(CORES_FAILED, problem)

    def _apply(self) -> None:
        """A kernel that does not allow it is reported: the agent does its work all the same."""
        usual = of_parent()
        wanted = replace(usual, cores=self._cores & usual.cores or usual.cores)
        last = replace(wanted, policy=os.SCHED_BATCH, priority=0, nice=LOWEST_NICE)
        try:
            apply_to_threads(wanted, last if self._gives_way else wanted)
        except OSError as error:
            self._fail(f"cannot set how the agent's threads run: {error.strerror}")
