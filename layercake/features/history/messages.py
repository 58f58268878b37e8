"""What stands in a commit's message: what was done, why, and the trailers; and back out of it.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from layercake.base.text import count_of, first_few, grouped
from layercake.features.history.normal import Fields
from layercake.inventory.ranges import fold

SUBJECT = 160
NAMED = 60
"""Characters of a subject, and of the nodes that it names."""
NOTHING = "nothing changes"
HEAD = "layercake"
"""The author of what nobody asked for."""
_HOW = "Layercake-How: "
_TOKEN = "Layercake-Token: "  # noqa: S105 (the name of a trailer)
_FROM = "Layercake-From: "
_NUMBER = "Layercake-Change: "
_MOST_FIELDS = 6


class Told(msgspec.Struct, frozen=True):
    """What is known of a change beside its content: `number` counts the changes of this head, `at`
    is seconds since the epoch; for the rest see fleet.transaction.Origin."""

    number: int
    at: float
    by: str = HEAD
    why: str = ""
    how: str = ""
    token: str = ""
    address: str = ""
    what: str = ""


class ChangeLogged(msgspec.Struct):
    """A change that was accepted, as its commit has it: its revision, when (seconds since the
    epoch), who asked, what it is and why it was asked for. Administrators of the whole site see how
    it was asked for, by which token and from where. `nodes` are those of the caller, or of the
    range, that it changed; empty without either."""

    revision: str
    at: float
    by: str
    what: str
    why: str
    how: str
    token: str
    address: str
    nodes: list[str] = []


def author(name: str) -> str:
    """A name as Git takes it."""
    return " ".join("".join(" " if c in "<>" else c for c in name).split()) or HEAD


def message(told: Told, what: str, number: int) -> str:
    """The message of a commit. `number` is that of the newest change that is in it."""
    lines = [": ".join(filter(None, (told.what, what))) or NOTHING, ""]
    if told.why:
        lines += [told.why, ""]
    trailers = (
        (_HOW, told.how),
        (_TOKEN, told.token),
        (_FROM, told.address),
        (_NUMBER, str(number)),
    )
    return "\n".join(lines + [f"{key}{value}" for key, value in trailers if value])


def read(revision: str, at: str, by: str, body: str) -> ChangeLogged:
    """A commit out of its parts."""
    lines = body.strip("\n").split("\n")
    end = max((i for i, line in enumerate(lines) if not line), default=0)
    trailers = dict.fromkeys((_HOW, _TOKEN, _FROM), "")
    for line in lines[end:]:
        for key in trailers:
            if line.startswith(key):
                trailers[key] = line.removeprefix(key)
    why = " ".join(line for line in lines[1:end] if line)
    how, token, address = trailers.values()
    return ChangeLogged(revision, float(at), by, lines[0], why, how, token, address)


def number_of(body: str) -> int:
    """The number of a commit's change, 0 if it has none."""
    last = body.strip().rpartition("\n")[2]
    digits = last.removeprefix(_NUMBER) if last.startswith(_NUMBER) else ""
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def subject(
    nodes: Mapping[str, tuple[Fields | None, Fields | None]], networks: Iterable[str]
) -> str:
    """What a change does, in a line: of each node before and after. Of values only a state is
    named: a command line may hold what not everybody may read."""
    does = grouped((_verb(before, after), name) for name, (before, after) in nodes.items())
    words = [f"{verb} {_names(names)}" for verb, names in does.items()]
    changed = sorted(networks)
    if changed:
        words.append(f"change the networks {', '.join(changed)}"[:NAMED])
    text = "; ".join(words)
    return text if len(text) <= SUBJECT else f"{text[: SUBJECT - 4]} ..."


def _verb(before: Fields | None, after: Fields | None) -> str:
    if before is None or after is None:
        return "add" if before is None else "remove"
    keys = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    if keys == ["state"]:
        return f"want {after['state']}:"
    if keys == ["held"]:
        return "hold for release:" if "held" in after else "released:"
    names = list(dict.fromkeys(key.partition(".")[0] for key in keys)) if len(keys) > 1 else keys
    return f"change {first_few(names, _MOST_FIELDS)} of"


def _names(names: list[str]) -> str:
    text = fold(names)
    return text if len(text) <= NAMED else count_of(len(names), "node")


def of_nodes(names: Iterable[str]) -> str:
    """The subject for who may see these nodes and no others."""
    return f"change {_names(sorted(names))}"
