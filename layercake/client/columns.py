"""The columns that people choose for a list of nodes: what each needs of the head, how it is shown,
and how it is sorted."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from layercake.base.text import amount_text, nearest, show
from layercake.client.output import Column, format_duration, short_digest
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


HARDWARE = "hardware"
"""The field with a node's hardware; see below for its columns."""


def _hardware(view: View) -> View:
    return view.get(HARDWARE) or {}


def _counted(texts: Iterable[str]) -> str:
    """2x mlx5_core,igb."""
    found = Counter(texts)
    return ",".join(f"{n}x {text}" if n > 1 else text for text, n in found.items()) or "-"


def _text(name: str) -> Callable[[View], str]:
    return lambda view: str(_hardware(view).get(name) or "-")


def _list(name: str) -> Callable[[View], str]:
    return lambda view: _counted(_hardware(view).get(name) or ())


def _disks(view: View) -> str:
    return _counted(map(amount_text, _hardware(view).get("disks") or ()))


def _number(name: str) -> Callable[[View], int]:
    return lambda view: int(_hardware(view).get(name) or 0)


def _count(name: str) -> Callable[[View], int]:
    return lambda view: len(_hardware(view).get(name) or ())


HARDWARE_TEXTS: dict[str, Callable[[View], str]] = {
    "model": _text("model"),
    "cpu": _text("cpu"),
    "disk": _disks,
    "disk-model": _list("disk_models"),
    "nic": _list("cards"),
    "gpu": _list("gpus"),
    "fabric": _list("fabrics"),
    "board": _text("board"),
    "bios": _text("bios"),
    "bmc-firmware": _text("bmc_firmware"),
    "system-serial": _text("serial"),
}
"""Columns that are texts."""
HARDWARE_NUMBERS: dict[str, Callable[[View], int]] = {
    "cpus": _number("cpus"),
    "cores": _number("cores"),
    "sockets": _number("sockets"),
    "memory": _number("memory"),
    "disks": _count("disks"),
    "storage": lambda view: sum(_hardware(view).get("disks") or ()),
    "nics": _count("cards"),
    "gpus": _count("gpus"),
}
"""Columns that can be summed."""


def _amount(of: Callable[[View], int]) -> Callable[[View], str]:
    """What a column of numbers shows of a node: - where it has no survey."""
    return lambda view: amount_text(of(view)) if _hardware(view) else "-"


def _roll(field: str) -> Callable[[View], str]:
    return lambda view: str((view.get("roll") or {}).get(field, "-"))


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
    "images": Kind(("images",), lambda view: images_text(view["images"])),
    "boot-set": Kind(("boots",), lambda view: (view["boots"] or {}).get("runs") or "-"),
    "agent": Kind(("boots",), lambda view: (view["boots"] or {}).get("agent") or "-"),
    "containers": Kind(
        ("containers",),
        lambda view: ",".join(f"{c['name']}:{c['state']}" for c in view["containers"]) or "-",
    ),
    "kernel": _plain("kernel"),
    "roll": Kind(("roll",), _roll("id")),
    "roll-state": Kind(("roll",), _roll("state")),
    **{name: Kind((HARDWARE,), text) for name, text in HARDWARE_TEXTS.items()},
    **{name: Kind((HARDWARE,), _amount(of), of) for name, of in HARDWARE_NUMBERS.items()},
}
"""Those that have a name of their own; variables (power, image) and label:KEY are columns too."""
ALIASES = {
    "image-set": "images",
    "bootset": "boot-set",
    "rack": "label:rack",
    "group": "groups",
    "mac": "macs",
    "since": "unchanged",
    "label": "labels",
}
"""Other words for columns, as queries have them."""
_OF_SOME = ("place", "serial")  # fields of a module's, which a head may not have
_BY_NAME = ("kernel", "roll", HARDWARE)
"""Fields that a list has only where it is asked for them."""


def images_text(images: Mapping[str, Any]) -> str:
    """The images of a node: what runs, and what shall run if that is something else."""
    if images["running"] == images["wanted"]:
        return ",".join(image["name"] for image in images["wanted"]) or "-"
    running = {(image["name"], image["digest"]) for image in images["running"]}
    wanted = {(image["name"], image["digest"]) for image in images["wanted"]}
    if running == wanted:
        return _image_names(running, frozenset())
    # A digest is shown only where the name alone would hide that it changes.
    same_name = {name for name, _ in running} & {name for name, _ in wanted}
    return f"{_image_names(running, same_name)} -> {_image_names(wanted, same_name)}"


def _image_names(images: Set[tuple[str, str]], with_digest: Set[str]) -> str:
    names = [
        f"{name}@{short_digest(digest)}" if name in with_digest else name
        for name, digest in sorted(images)
    ]
    return ",".join(names) or "-"


def kind_of(name: str, variables: Sequence[str]) -> Kind:
    """The column of a name. Raises InputError."""
    name = ALIASES.get(name, name)
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
    """The fields that these columns need, before it is known which variables there are; "" for all
    that a list has anyway."""
    fields = {
        field
        for name in (ALIASES.get(name, name) for name in names)
        for field in (KINDS[name].fields if name in KINDS else ("state", "labels"))
    }
    return ",".join(sorted({"name"} | fields - set(_OF_SOME))) if not fields & set(_OF_SOME) else ""


def fields_by_name(names: Sequence[str]) -> str:
    """Of the fields that these columns need those that are in no list without being asked for."""
    fields = {field for name in names if name in KINDS for field in KINDS[name].fields}
    return ",".join(field for field in _BY_NAME if field in fields)


SEARCHED = ("name", "ip", "macs", "serial", "labels", "groups", "images", "place", "network", "bmc")
"""The fields of a node in which a text is looked for."""


def has_text(view: View, text: str) -> bool:
    """Whether a text is in what a node is called, has, or runs; upper and lower case are one."""
    return any(
        text.lower() in word.lower() for key in SEARCHED for word in _leaf_texts(view.get(key))
    )


def _leaf_texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaf_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaf_texts(inner)
    elif value is not None:
        yield str(value)


def column_of(name: str) -> Column:
    """How it is drawn."""
    return Column(
        name.upper(),
        flexible=name in ("detail", "labels", "containers"),
        right=name in ("seen", "unchanged", *HARDWARE_NUMBERS),
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


_SHOWN = ("power", "run", "image")
"""The variables that a list always shows."""
_USUAL = {
    "bmc-health": ("OK",),
    "boot": ("INIT", "WAIT"),
    "busy": ("FREE",),
    "disk": ("READY",),
    "hardware": ("OK",),
    "thermal": ("NORMAL",),
}
"""Of the others the values of which nothing needs to be said: what else they are stands in
DETAIL."""


def variables_of(answer: Mapping[str, Any]) -> list[str]:
    """The variables of the head that gave a list of nodes."""
    return answer.get("variables") or [*(answer["nodes"][0]["state"] if answer["nodes"] else ())]


def list_variables(answer: Mapping[str, Any]) -> list[str]:
    """The variables that are columns of a list: those that are always shown, and those of a site's
    own modules where they are known."""
    return [
        name
        for name in variables_of(answer)
        if name in _SHOWN
        or (
            name not in _USUAL
            and any(view["state"].get(name, "UNKNOWN") != "UNKNOWN" for view in answer["nodes"])
        )
    ]


def list_columns(variables: Sequence[str]) -> list[Column]:
    """The columns of a list of nodes where none were chosen."""
    return [
        Column("NAME"),
        Column("STATUS", styled=True),
        *(Column(name.upper(), styled=True) for name in variables),
        Column("IMAGES", flexible=True),
        Column("IP"),
        Column("SEEN", right=True),
        Column("DETAIL", flexible=True),
    ]


def list_row(view: View, variables: Sequence[str]) -> list[str]:
    """A node in such a list."""
    state = view["state"]
    odd = [
        f"{name} {state[name]}"
        for name, usual in _USUAL.items()
        if state.get(name, "UNKNOWN") not in (*usual, "UNKNOWN")
    ]
    frozen = ["frozen"] if "frozen" in view.get("stopped", ()) else []
    return [
        view["name"],
        view["status"],
        *(state.get(name, "-") for name in variables),
        images_text(view["images"]),
        view["ip"],
        format_duration(view["last_seen_s"]),
        ", ".join([*frozen, *odd, *([view["status_text"]] if view["status_text"] else [])]),
    ]
