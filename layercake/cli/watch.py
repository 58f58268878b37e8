"""Follows nodes until they are where they should be. The judgement is pure; the loop around it polls, woken by events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from layercake.cli.client import Client
from layercake.cli.output import Column, Output, build, seconds
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, LayercakeError, Unreachable

# How long a bad status must last before it counts: the engine may be about to leave it.
STUCK_S = {"quarantined": 3.0, "blocked": 15.0}
FAST_S, SLOW_S, FEW = 0.1, 1.0, 64
_LONGEST_QUERY = 2000  # an HTTP request line has 8 kB; a longer range is asked for as "all"

NodeView = Mapping[str, Any]
Done = Callable[[NodeView], bool]


def converged(node: NodeView) -> bool:
    """The head calls it converged, and its state agrees with its goal."""
    return node["status"] == "converged" and all(node["state"].get(k) == v for k, v in node["goal"].items())


def rolled(node: NodeView) -> bool:
    """It runs exactly the images that are wanted, by digest."""
    return _digests(node["images"]["running"]) == _digests(node["images"]["wanted"]) and converged(node)


def _digests(images: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    return sorted((i["name"], i["digest"]) for i in images)


@dataclass(slots=True)
class Seen:
    """What is known of one node: `finished` is in seconds since the start, None as long as it is under way."""

    name: str
    status: str = "working"
    text: str = ""
    finished: float | None = None
    ok: bool = False
    stuck_since: float | None = None

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"name": self.name, "status": self.status, "status_text": self.text, "done": self.ok,
                "seconds": None if self.finished is None or not self.ok else round(self.finished, 2)}


@dataclass(slots=True)
class Watch:
    """Judges snapshots of nodes. Times are seconds since the watch began; the caller has the clock."""

    names: Sequence[str]
    done: Done
    seen: dict[str, Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = {name: Seen(name) for name in self.names}

    def update(self, nodes: Iterable[NodeView], elapsed: float) -> list[Seen]:
        """Takes a snapshot; returns the nodes that look different now."""
        changed = []
        present = {n["name"]: n for n in nodes}
        for seen in self.seen.values():
            before = (seen.status, _step(seen.text), seen.finished is None)
            node = present.get(seen.name)
            if node is None:
                seen.status, seen.text = "gone", "no longer in the inventory"
                seen.finished, seen.ok = seen.finished or elapsed, False
            else:
                self._judge(seen, node, elapsed)
            if before != (seen.status, _step(seen.text), seen.finished is None):
                changed.append(seen)
        return changed

    def _judge(self, seen: Seen, node: NodeView, elapsed: float) -> None:
        seen.status, seen.text = str(node["status"]), str(node["status_text"])
        if self.done(node):
            seen.stuck_since = None
            if not seen.ok or seen.finished is None:
                seen.finished, seen.ok = elapsed, True
            return
        seen.ok = False
        if seen.status in STUCK_S:
            seen.stuck_since = elapsed if seen.stuck_since is None else seen.stuck_since
            seen.finished = elapsed if elapsed - seen.stuck_since >= STUCK_S[seen.status] else None
        else:
            seen.stuck_since = seen.finished = None

    @property
    def over(self) -> bool:
        """Whether each node is where it should be, or stuck."""
        return all(s.finished is not None for s in self.seen.values())

    @property
    def ok(self) -> bool:
        """Whether each node is where it should be."""
        return all(s.ok for s in self.seen.values())

    def failed(self) -> list[Seen]:
        """The nodes that are not."""
        return [s for s in self.seen.values() if not s.ok]


def _step(text: str) -> str:
    """A status text without its running seconds, which change all the time."""
    return text.split(",")[0].split(" in ")[0]


async def follow(head: Client, watch: Watch, out: Output, timeout: float) -> bool:
    """Follows until all is over or `timeout` seconds have passed; shows progress. Whether every node is where it should be.

    A head that goes away meanwhile is waited for: it may be starting anew.
    """
    if not watch.names:
        return True
    wake = asyncio.Event()
    listener = asyncio.create_task(_listen(head, wake))
    try:
        with _screen(watch, out) as show:
            await _poll(head, watch, wake, show, timeout, out)
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
    return watch.ok


async def _poll(head: Client, watch: Watch, wake: asyncio.Event, show: Show, timeout: float, out: Output) -> None:
    started = time.monotonic()
    wanted: str | None = fold(watch.names)
    if wanted is not None and len(wanted) > _LONGEST_QUERY:
        wanted = None
    gap = FAST_S if len(watch.names) <= FEW else SLOW_S
    away = False
    while True:
        wake.clear()
        try:
            nodes = (await head.get("/v1/nodes", range=wanted))["nodes"]
        except Unreachable as error:
            if not away:
                out.note(f"{error.message}; waiting for it")
            away, nodes = True, None
        except InputError:
            # A node was removed meanwhile, and the range names it no longer: look at all, and call that one gone.
            if wanted is None:
                raise
            wanted = None
            continue
        elapsed = time.monotonic() - started
        if nodes is not None:
            away = False
            show(watch.update(nodes, elapsed), elapsed)
        if watch.over or elapsed >= timeout:
            return
        await asyncio.sleep(gap)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), min(SLOW_S, max(0.0, timeout - elapsed)))


async def _listen(head: Client, wake: asyncio.Event) -> None:
    """Wakes the poll at each event. Only a faster alarm clock: without it the poll still runs each second."""
    while True:
        with contextlib.suppress(LayercakeError):
            async for _ in head.events():
                wake.set()
        await asyncio.sleep(SLOW_S)


Show = Callable[[list[Seen], float], None]
_COLUMNS = (Column("NODE"), Column("STATUS", styled=True), Column("TIME", right=True), Column("DETAIL", flexible=True))


@contextlib.contextmanager
def _screen(watch: Watch, out: Output) -> Any:
    """How progress is shown: a live table on a terminal, a line for each change elsewhere, nothing with --json."""
    if out.json:
        yield lambda changed, elapsed: None
    elif out.terminal:
        with Live(console=out.console, refresh_per_second=8, transient=True) as live:
            yield lambda changed, elapsed: live.update(_picture(watch, elapsed, out))
    else:
        def lines(changed: list[Seen], elapsed: float) -> None:
            for seen in changed:
                out.line(f"{elapsed:7.1f}s  {seen.name}  {seen.status}" + (f"  {seen.text}" if seen.text else ""))

        yield lines


def _picture(watch: Watch, elapsed: float, out: Output) -> Group:
    """The unfinished nodes first, no more than the terminal has lines."""
    ordered = sorted(watch.seen.values(), key=lambda s: s.ok)
    room = max(3, out.console.height - 4)
    rows = [(s.name, s.status, seconds(s.finished if s.ok else elapsed), s.text) for s in ordered[:room]]
    count = sum(s.ok for s in ordered)
    rest = f", {len(ordered) - room} not shown" if len(ordered) > room else ""
    footer = Text(f"{count} of {len(ordered)} nodes are there, {seconds(elapsed)}{rest}", style="bold")
    return Group(build(_COLUMNS, rows, out.console.width), footer)


def summary(watch: Watch, out: Output, timeout: float) -> None:
    """The result as a table, and what to look at for the nodes that are not there."""
    out.table(_COLUMNS, [(s.name, s.status, seconds(s.finished) if s.ok else "-", s.text) for s in watch.seen.values()])
    failed = watch.failed()
    if failed:
        late = "" if watch.over else f" after {timeout:.0f} s"
        out.note(f"{len(failed)} of {len(watch.seen)} nodes are not where they should be{late}: {fold(s.name for s in failed)}")
        out.note(f"hint: layercake node explain {failed[0].name}")
