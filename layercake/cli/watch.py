"""`layercake watch`: the rack in a terminal, as it changes: each node as a letter, what is wrong by
cause, what goes on."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from layercake.base.text import count_of
from layercake.client.command import Answer, App, command
from layercake.client.output import BOLD, DIM, GREEN, STYLES, Output, clean, format_duration
from layercake.client.watch import poll
from layercake.features.guard.commands import alarms
from layercake.features.rolls.commands import OVER, roll_line

LETTERS = {
    "converged": "●",
    "maintenance": "M",
    "working": "w",
    "waiting": "w",
    "held": "H",
    "silent": "S",
    "unwell": "U",
    "asking": "?",
    "blocked": "B",
    "quarantined": "Q",
}
"""A node's letter by its status; what has none is its first letter."""
EVERY_S = 1.0
CAUSES_S = 5.0
"""How often the head is asked, and how old what is known of the causes may be."""
FIELDS = "name,status,groups,state"
_NO_GROUP = "-"
_OTHER = "o"
_ROOM = 200
_SHOWN_CAUSES = 5
_LEAST_GROUPS = 4
NOTHING: Mapping[str, Any] = {"causes": [], "well": 0}


class Rack:
    """What is known of the nodes: told whole once, and then only what has changed."""

    def __init__(self) -> None:
        self.change = ""
        self._nodes: dict[str, tuple[str, str, str]] = {}

    def apply_answer(self, answer: Mapping[str, Any]) -> list[str]:
        """Takes an answer of GET /v1/nodes in; what is news: how many there are, then a line for
        each whose status is another."""
        first = not self.change
        gone = (
            set(self._nodes) - {view["name"] for view in answer["nodes"]}
            if answer["whole"]
            else set(answer["removed"])
        )
        for name in gone:
            self._nodes.pop(name, None)
        news = [f"{name}  gone" for name in sorted(gone)]
        for view in answer["nodes"]:
            groups = view.get("groups") or [_NO_GROUP]
            before = self._nodes.get(view["name"])
            self._nodes[view["name"]] = (view["status"], groups[0], view["state"].get("power", ""))
            if before is not None and before[0] != view["status"]:
                news.append(f"{view['name']}  {before[0]} -> {view['status']}")
        self.change = answer["change"]
        return (
            [
                f"{count_of(len(self._nodes), 'node')}: "
                f"{', '.join(f'{n} {name}' for name, n in self.counts.most_common())}"
            ]
            if first
            else news
        )

    @property
    def counts(self) -> Counter[str]:
        """How many nodes are how."""
        return Counter(status for status, _, _ in self._nodes.values())

    def rows(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """(group, [(status, letter)]) in the order of names, by the first group of each node."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in sorted(self._nodes, key=_natural):
            status, group, power = self._nodes[name]
            letter = (
                _OTHER
                if status == "converged" and power == "OFF"
                else LETTERS.get(status, status[:1])
            )
            groups.setdefault(group, []).append((status, letter))
        yield from sorted(groups.items())


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0), name


def picture(
    rack: Rack,
    status: Mapping[str, Any],
    causes: Mapping[str, Any],
    rolls: Sequence[Mapping[str, Any]],
    out: Output,
    width: int,
    height: int,
) -> list[str]:
    """What is seen on a terminal of that size: trouble first, then the nodes, then what goes on."""
    counts = rack.counts
    total = (
        ", ".join(
            f"{count} {out.styled(name, STYLES.get(name, ''))}"
            for name, count in counts.most_common()
        )
        or "no nodes"
    )
    lines = [
        f"{count_of(sum(counts.values()), 'node')}: {total}",
        *(out.styled(clean(line), style) for line, style in alarms(status)),
        "",
    ]
    cause_lines = list(_causes(causes, out))
    going = [clean(roll_line(roll))[:width] for roll in rolls if roll["state"] not in OVER][:3]
    room = max(_LEAST_GROUPS, height - len(lines) - len(cause_lines) - len(going) - 3)
    groups = [line for group, nodes in rack.rows() for line in _group(group, nodes, width, out)]
    if len(groups) > room:
        groups = [_short(group, nodes, out) for group, nodes in rack.rows()]
    hidden = len(groups) - room
    lines += [*groups[:room], *([out.styled(f"{hidden} more groups", DIM)] if hidden > 0 else [])]
    return [*lines, "", *cause_lines, *going][: max(height - 1, 1)]


def _causes(causes: Mapping[str, Any], out: Output) -> Iterator[str]:
    listed = [cause for cause in causes["causes"] if cause["status"] != "silent"]
    for cause in listed[:_SHOWN_CAUSES]:
        text = (
            f"{len(cause['nodes'])} {cause['status']} for "
            f"{format_duration(cause['longest_s'])}: {cause['text']}"
        )
        yield out.styled(clean(text)[:_ROOM], STYLES.get(cause["status"], BOLD))
        yield out.styled(_next(cause), DIM)
    if len(listed) > _SHOWN_CAUSES:
        yield out.styled(
            f"{count_of(len(listed) - _SHOWN_CAUSES, 'more cause')}: layercake explain", DIM
        )


def _next(cause: Mapping[str, Any]) -> str:
    """A cause's nodes and the command for them in a line; where they do not fit, how to see them:
    a command that is cut off is one for other nodes."""
    line = clean(f"    {cause['range']}  next: {cause['command'] or cause['next']}")
    if len(line) <= _ROOM:
        return line
    return clean(f"    next: {cause['next']}: layercake explain")[:_ROOM]


def _group(group: str, nodes: Sequence[tuple[str, str]], width: int, out: Output) -> Iterator[str]:
    label = f"{clean(group)[:16]:<16} {len(nodes):>5}  "
    room = max(8, width - len(label))
    for at in range(0, len(nodes), room):
        yield (label if not at else " " * len(label)) + _letters(nodes[at : at + room], out)


def _letters(nodes: Iterable[tuple[str, str]], out: Output) -> str:
    """Letters, with a colour for each run of one."""
    runs: list[tuple[str, str]] = []
    for status, letter in nodes:
        if runs and runs[-1][0] == status:
            runs[-1] = (status, runs[-1][1] + letter)
        else:
            runs.append((status, letter))
    return "".join(out.styled(text, STYLES.get(status, GREEN)) for status, text in runs)


def _short(group: str, nodes: Sequence[tuple[str, str]], out: Output) -> str:
    """A group in one line, of a rack that is too large for letters."""
    counts = Counter(status for status, _ in nodes)
    text = ", ".join(
        f"{count} {out.styled(name, STYLES.get(name, ''))}" for name, count in counts.most_common()
    )
    return f"{clean(group)[:16]:<16} {len(nodes):>5}  {text}"


@command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=None,
    metavar="S",
    help="Seconds until it ends; without, it goes on until it is interrupted.",
)
def watch(app: App, timeout: float | None) -> Answer:
    """Show the rack as it changes, until interrupted: each node as a letter, outages, what is wrong
    by cause, and rolls.

    \b
    ●  as wanted      o  off, as wanted    w  on its way, or waiting   H  held back
    ?  needs a person B  blocked           Q  quarantined              S  silent, in an outage
    U  as wanted, but a container is not well
    Elsewhere than on a terminal: a line for each node whose status changes.
    """
    rack = Rack()
    asked = float("-inf")
    causes = NOTHING

    def fetch() -> tuple[dict[str, Any], list[str]]:
        nonlocal asked, causes
        news = rack.apply_answer(app.head.get("/v1/nodes", fields=FIELDS, since=rack.change))
        if (news or causes is NOTHING) and app.out.terminal and time.monotonic() > asked + CAUSES_S:
            causes = app.head.get("/v1/causes")
            asked = time.monotonic()
        return app.head.get("/v1/status"), news

    with app.out.progress() as show:
        for (status, news), _ in poll(app.out, fetch, timeout, EVERY_S):
            rolls = app.head.get("/v1/rolls")["rolls"] if app.out.terminal else []
            show(
                news,
                functools.partial(
                    picture, rack, status, causes, rolls, app.out, app.out.width, app.out.height
                ),
            )
    return Answer({"nodes": dict(rack.counts)})
