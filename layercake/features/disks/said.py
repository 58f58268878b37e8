"""What a node says of its own disks, as far as it is well-formed: it goes to people's screens."""

from __future__ import annotations

from typing import Any

import msgspec

MOST_DISKS = 64
MOST_LAYOUTS = 16
STATES = ("BLANK", "FOREIGN", "READY", "ERROR")


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk: its kernel name, its lasting names, and what it holds that is in the way ("":
    nothing), with a mark of that."""

    name: str
    names: tuple[str, ...] = ()
    bytes: int = 0
    model: str = ""
    path: str = ""
    rotational: bool = False
    transport: str = ""
    layout: str = ""
    holds: str = ""
    mark: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How a layout is, and why."""

    name: str
    state: str
    why: str = ""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node says. `done` are the ids of the words that were used."""

    state: str = ""
    disks: tuple[Disk, ...] = ()
    layouts: tuple[State, ...] = ()
    done: tuple[str, ...] = ()


def parse_disks(data: object) -> Said | None:
    """None for what is not as agreed."""
    try:
        found = msgspec.convert(data, Said)
    except msgspec.ValidationError:
        return None
    if found.state not in STATES:
        return None
    return Said(
        state=found.state,
        disks=tuple(map(_disk, found.disks[:MOST_DISKS])),
        done=found.done[:64],
        layouts=tuple(
            State(name=_plain(one.name, 16), state=_plain(one.state, 16), why=_plain(one.why, 500))
            for one in found.layouts[:MOST_LAYOUTS]
        ),
    )


def _disk(one: Disk) -> Disk:
    return Disk(
        name=_plain(one.name, 32),
        names=tuple(_plain(word, 120) for word in one.names[:8]),
        bytes=one.bytes if 0 <= one.bytes < 1 << 60 else 0,
        model=_plain(one.model, 80),
        path=_plain(one.path, 200),
        rotational=one.rotational,
        transport=_plain(one.transport, 16),
        layout=_plain(one.layout, 16),
        holds=_plain(one.holds, 400),
        mark=_plain(one.mark, 32),
    )


def _plain(word: str, most: int) -> str:
    """Hostile labels and serial numbers as text that does nothing to a terminal."""
    return "".join(c if c.isprintable() else "?" for c in word[:most])


def plain_data(found: Said) -> dict[str, Any]:
    """JSON-ready, for people and programs."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return {key: its for key, its in data.items() if key != "done"}
