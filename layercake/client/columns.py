"""The columns that people choose for a list of nodes: what each needs of the head, how it is shown,
and how it is sorted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from layercake.base.text import nearest, show
from layercake.client.output import Column, format_duration
from layercake.kraken.errors import InputError

View = Mapping[str, Any]
LABEL = "label:"
_DIGITS = re.compile(r"(\d+)")


class Kind(NamedTuple):
    """A column: the node's fields that it needs, its text of a node, and, for times, what it is
    sorted by instead."""

    fields: tuple[str, ...]
    text: Callable[[View], str]
    number: Callable[[View], float] | None = None


def _time(field: str) -> Kind:
    return Kind(
        (field,),
        lambda view: format_duration(view[field]),
        lambda view: math.inf if view[field] is None else float(view[field]),
    )


def _plain(field: str) -> Kind:
    return Kind((field,), lambda view: str(view.get(field) or "-"))


def _several(field: str) -> Kind:
    return Kind((field,), lambda view: ",".join(view[field]) or "-")


def _place(view: View) -> str:
    return " ".join(str(part) for part in (view.get("place") or {}).values() if part) or "-"


KINDS: dict[str, Kind] = {
    "name": _plain("name"),
    "status": _plain("status"),
    "wanted": _plain("wanted"),
    "ip": _plain("ip"),
    "macs": _several("macs"),
    "groups": _several("groups"),
    "network": _plain("network"),
    "profile": _plain("profile"),
    "firmware": _plain("firmware"),
    "seen": _time("last_seen_s"),
    "unchanged": _time("since_s"),
    "detail": _plain("status_text"),
    "stopped": _several("stopped"),
    "labels": Kind(
        ("labels",),
        lambda view: ",".join(f"{k}={v}" for k, v in sorted(view["labels"].items())) or "-",
    ),
    "place": Kind(("place",), _place),
    "serial": _plain("serial"),
    "containers": Kind(
        ("containers",),
        lambda view: ",".join(f"{c['name']}:{c['state']}" for c in view["containers"]) or "-",
    ),
}
"""Those that have a name of their own; variables (power, image) and label:KEY are columns too."""
_OF_SOME = ("place", "serial")  # fields of a module's, which a head may not have


def kind_of(name: str, variables: Sequence[str]) -> Kind:
    """The column of a name. Raises InputError."""
    if name.startswith(LABEL) and name != LABEL:
        key = name.removeprefix(LABEL)
        return Kind(("labels",), lambda view: str(view["labels"].get(key, "-")))
    if name in KINDS:
        return KINDS[name]
    if name in variables:
        return Kind(("state",), lambda view: str(view["state"].get(name, "-")))
    known = (*KINDS, *variables, f"{LABEL}KEY")
    raise InputError(
        f"cannot show the column {show(name)}: nodes have none",
        hint=nearest(name, known) or f"there are {', '.join(known)}",
    )


def fields_of(names: Sequence[str]) -> str:
    """The fields that these columns need, before it is known which variables there are."""
    fields = {
        field
        for name in names
        for field in (KINDS[name].fields if name in KINDS else ("state", "labels"))
    }
    return ",".join(sorted({"name"} | fields - set(_OF_SOME))) if not fields & set(_OF_SOME) else ""


def column_of(name: str) -> Column:
    """How it is drawn."""
    return Column(
        name.upper(),
        flexible=name in ("detail", "labels", "containers"),
        right=name in ("seen", "unchanged"),
        styled=True,
    )


def sort_nodes(views: Sequence[View], order: str, variables: Sequence[str]) -> list[View]:
    """The nodes in the order of a column; with - before it, the other way round. Raises
    InputError."""
    kind = kind_of(order.removeprefix("-"), variables)

    def mark(view: View) -> tuple[float, list[tuple[bool, int, str]]]:
        text = kind.text(view)
        parts = [
            (not part.isdigit(), int(part[:18]) if part.isdigit() else 0, part)
            for part in _DIGITS.split(text)
            if part
        ]
        return (kind.number(view) if kind.number is not None else 0.0), parts

    return sorted(views, key=mark, reverse=order.startswith("-"))
