"""Follows nodes until they are where they should be. The judgement is pure; the loop around it
polls."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from layercake.base.text import count_of
from layercake.client.http import Client
from layercake.client.output import BOLD, Column, Output, format_duration
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, Unreachable

# How long a bad status must last before it counts: the engine may be about to leave it.
STUCK_S = {"quarantined": 3.0, "blocked": 15.0, "asking": 15.0}
FEW = 16
"""So many nodes are shown one by one, more by what is the same of them."""
PROGRESS_S = 2.0
GAP_S = 0.2
SHARE = 3  # at least so many times as long as the head took to answer, it is left alone
_LONGEST_QUERY = 2000  # an HTTP request line has 8 kB; a longer range is asked for as "all"
_COLUMNS = (
    Column("NODE"),
    Column("STATUS", styled=True),
    Column("TIME", right=True),
    Column("DETAIL", flexible=True),
)

T = TypeVar("T")
NodeView = Mapping[str, Any]
Done = Callable[[NodeView], bool]


def converged(node: NodeView) -> bool:
    """The head says that it is as wanted, and its state agrees with its goal."""
    return node["status"] in ("converged", "maintenance", "unwell") and all(
        node["state"].get(k) == v for k, v in node["goal"].items()
    )


def runs_wanted_images(node: NodeView) -> bool:
    """It runs exactly the images that are wanted, by digest."""
    return _digests(node["images"]["running"]) == _digests(node["images"]["wanted"]) and converged(
        node
    )


def _digests(images: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    return sorted((i["name"], i["digest"]) for i in images)


@dataclass(slots=True)
class NodeProgress:
    """What is known of one node: `step` is the mutation under way, `finished` is in seconds since
    the start, None as long as it is under way."""

    name: str
    status: str = "working"
    text: str = ""
    step: str = ""
    finished: float | None = None
    ok: bool = False
    stuck_since: float | None = None

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "status": self.status,
            "status_text": self.text,
            "done": self.ok,
            "seconds": None if self.finished is None or not self.ok else round(self.finished, 2),
        }


@dataclass(slots=True)
class Watch:
    """Judges snapshots of nodes. Times are seconds since the watch began; the caller has the
    clock."""

    names: Sequence[str]
    done: Done
    nodes: dict[str, NodeProgress] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = {name: NodeProgress(name) for name in self.names}

    def update(self, nodes: Iterable[NodeView], elapsed: float) -> list[NodeProgress]:
        """Takes a snapshot; returns the nodes that look different now."""
        changed = []
        present = {n["name"]: n for n in nodes}
        for progress in self.nodes.values():
            before = (progress.status, progress.step, progress.finished is None)
            node = present.get(progress.name)
            if node is None:
                progress.status = "gone"
                progress.text = "no longer in the inventory"
                progress.step = ""
                progress.finished = progress.finished or elapsed
                progress.ok = False
            else:
                self._judge(progress, node, elapsed)
            if before != (progress.status, progress.step, progress.finished is None):
                changed.append(progress)
        return changed

    def _judge(self, progress: NodeProgress, node: NodeView, elapsed: float) -> None:
        progress.status = str(node["status"])
        progress.text = str(node["status_text"])
        progress.step = node["active"]["mutation"] if node["active"] else ""
        if self.done(node):
            progress.stuck_since = None
            if not progress.ok or progress.finished is None:
                progress.finished = elapsed
                progress.ok = True
            return
        progress.ok = False
        if progress.status in STUCK_S:
            progress.stuck_since = elapsed if progress.stuck_since is None else progress.stuck_since
            stuck_for = elapsed - progress.stuck_since
            progress.finished = elapsed if stuck_for >= STUCK_S[progress.status] else None
        else:
            progress.stuck_since = progress.finished = None

    @property
    def over(self) -> bool:
        """Whether each node is where it should be, or stuck."""
        return all(s.finished is not None for s in self.nodes.values())

    @property
    def ok(self) -> bool:
        """Whether each node is where it should be."""
        return all(s.ok for s in self.nodes.values())

    def failed(self) -> list[NodeProgress]:
        """The nodes that are not."""
        return [s for s in self.nodes.values() if not s.ok]


def poll(
    out: Output, fetch: Callable[[], T], timeout: float | None, gap: float | None = None
) -> Iterator[tuple[T, float]]:
    """Asks the head again and again, `gap` seconds apart at least, until `timeout` seconds have
    passed: each answer, and the seconds since the start. A head that goes away meanwhile is waited
    for: it may be starting anew."""
    started = time.monotonic()
    away = False
    while True:
        asked = time.monotonic()
        try:
            answer = fetch()
            away = False
            yield answer, time.monotonic() - started
        except Unreachable as error:
            if not away:
                out.note(f"{error.message}; waiting for it")
            away = True
        now = time.monotonic()
        left = math.inf if timeout is None else started + timeout - now
        if left <= 0:
            return
        time.sleep(min(left, max(GAP_S if gap is None else gap, SHARE * (now - asked))))


def follow(head: Client, watch: Watch, out: Output, timeout: float) -> bool:
    """Follows until all is over or `timeout` seconds have passed; shows progress. Whether every
    node is where it should be."""
    if not watch.names:
        return True
    wanted = fold(watch.names)

    def fetch() -> Sequence[NodeView]:
        nonlocal wanted
        try:
            views: Sequence[NodeView] = head.get("/v1/nodes", range=wanted)["nodes"]
        except InputError:
            # A node was removed meanwhile, and the range names it no longer: ask for all, and call
            # that one gone.
            if not wanted:
                raise
            wanted = ""
            return fetch()
        return views

    if len(wanted) > _LONGEST_QUERY:
        wanted = ""
    news = _Progress(watch)
    with out.progress() as show:
        for nodes, elapsed in poll(out, fetch, timeout):
            lines = news.lines(watch.update(nodes, elapsed), elapsed)
            show(lines, functools.partial(_picture, watch, elapsed, out))
            if watch.over:
                break
    return watch.ok


class _Progress:
    """What is said on the way where there is no terminal: of `FEW` nodes a line for each that looks
    different, of more how many are how, every `PROGRESS_S` seconds at most."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._said = ""
        self._next = 0.0

    def lines(self, changed: Sequence[NodeProgress], elapsed: float) -> list[str]:
        """The lines for an answer."""
        nodes = self._watch.nodes.values()
        if len(nodes) <= FEW:
            return [
                f"{elapsed:7.1f}s  {s.name}  {s.status}" + (f"  {s.text}" if s.text else "")
                for s in changed
            ]
        counts = Counter(s.status for s in nodes).most_common()
        how = ", ".join(f"{count} {status}" for status, count in counts)
        said = f"{count_of(len(nodes), 'node')}: {how}"
        if said == self._said or (elapsed < self._next and not self._watch.over):
            return []
        self._said = said
        self._next = elapsed + PROGRESS_S
        return [f"{elapsed:7.1f}s  {said}"]


def _picture(watch: Watch, elapsed: float, out: Output) -> list[str]:
    """The unfinished nodes first, no more than the terminal has lines."""
    ordered = sorted(watch.nodes.values(), key=lambda s: s.ok)
    room = max(3, out.height - 4)
    rows = [
        (s.name, s.status, format_duration(s.finished if s.ok else elapsed), s.text)
        for s in ordered[:room]
    ]
    count = sum(s.ok for s in ordered)
    rest = f", {len(ordered) - room} not shown" if len(ordered) > room else ""
    footer = f"{count} of {len(ordered)} nodes are there, {format_duration(elapsed)}{rest}"
    return [*out.table_lines(_COLUMNS, rows), out.styled(footer, BOLD)]


def _rows(nodes: Collection[NodeProgress]) -> list[tuple[str, str, str, str]]:
    """A row for each node; of more than `FEW` one for those that look the same, with the longest
    time of them."""
    alike: dict[tuple[str, ...], list[NodeProgress]] = {}
    for s in nodes:
        detail = s.step or s.text if len(nodes) > FEW else s.text
        own = () if len(nodes) > FEW else (s.name,)
        alike.setdefault((s.status, detail, "there" if s.ok else "", *own), []).append(s)
    return [
        (
            fold(s.name for s in its),
            status,
            format_duration(max(s.finished or 0.0 for s in its)) if there else "-",
            detail,
        )
        for (status, detail, there, *_), its in alike.items()
    ]


def print_summary(watch: Watch, out: Output, timeout: float) -> None:
    """The result as a table, and what to look at for the nodes that are not there."""
    if not watch.names:
        return
    out.table(_COLUMNS, _rows(watch.nodes.values()))
    failed = watch.failed()
    if failed:
        late = "" if watch.over else f" after {timeout:.0f} s"
        out.note(
            f"{len(failed)} of {len(watch.nodes)} nodes are not where they should be{late}: "
            f"{fold(s.name for s in failed)}"
        )
        out.note(f"hint: layercake node explain {failed[0].name}")
