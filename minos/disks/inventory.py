"""The key `disks` of the inventory: what becomes of a node's own disks.

disks:
  scratch:
    match: {transport: nvme, min: 400G}
    count: 2
    raid: 0
    volumes: {scratch: {type: xfs, mount: /scratch}}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, nearest, show
from layercake.moduleapi.fields import Check, Mistake, mapping, matching, number, text
from layercake.moduleapi.module import NodePart

MAX_LAYOUTS = 16
MAX_VOLUMES = 16
MAX_DISKS = 64
MAX_WORDS = 64
NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_SIZE = re.compile(r"([1-9][0-9]{0,6})([MGT])")
_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_WORD = re.compile(r"[!-~]{1,120}")
_OPTIONS = re.compile(r"[A-Za-z0-9_=.,:-]{1,200}")
_MODE = re.compile(r"0?[0-7]{3,4}")
_TRANSPORTS = ("ata", "nvme", "sas", "scsi", "usb", "virtio")
_OWN = ("dev", "proc", "sys", "run", "usr", "etc", "bin", "sbin", "lib", "lib64", "init", "boot")
"""What is minOS's own below /: nothing is mounted over it."""


def size(value: object) -> int:
    """A size in bytes, of a text as 400G: M, G and T are powers of 1024. What it gave, whole
    mebibytes, it takes too."""
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value > 0
        and not value % _UNITS["M"]
    ):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Mistake(f"expected a size, found {describe(value)}", "such as 512M, 400G or 2T")
    return int(match[1]) * _UNITS[match[2]]


def _size_or_rest(value: object) -> int:
    return 0 if value == "rest" else size(value)


def _word_list(value: object) -> list[str]:
    """A word, or a list of words."""
    items: list[Any] = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, str) or not _WORD.fullmatch(item):
            raise Mistake(
                f"{show(str(item))} names no disk",
                "a serial number or WWID as `layercake machine disks NODE` has it, in quotes if it "
                "is all digits",
            )
    if not items or len(items) > MAX_WORDS:
        raise Mistake(f"expected up to {MAX_WORDS} words, found {len(items)}")
    return items


def _glob(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise Mistake(f"expected text, found {describe(value)}", "* stands for any characters")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Mistake(f"expected true or false, found {describe(value)}")
    return value


def _transport(value: object) -> str:
    name = text(value)
    if name not in _TRANSPORTS:
        raise Mistake(
            f"there is no transport {show(name)}",
            nearest(name, _TRANSPORTS) or f"one of {', '.join(_TRANSPORTS)}",
        )
    return name


_MATCH: dict[str, Callable[[object], Any]] = {
    "min": size,
    "max": size,
    "model": _glob,
    "serial": _word_list,
    "path": _glob,
    "rotational": _flag,
    "transport": _transport,
}


def _match(value: object) -> dict[str, Any]:
    """Which disks a layout is for: all of it holds for each."""
    if not value:
        raise Mistake("it matches no disk in particular", "as {transport: nvme, min: 400G}")
    return mapping(value, _MATCH)


def _count(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    count: int = number(1, MAX_DISKS, "a number of disks, or all,")(value)
    return count


def mount_point(value: object) -> str:
    """Where a volume is mounted in minOS."""
    path = text(value)
    parts = path.split("/")[1:]
    if (
        not _WORD.fullmatch(path)
        or not path.startswith("/")
        or {"", ".", ".."} & set(parts)
        or not parts
        or "\\" in path
    ):
        raise Mistake(
            f"{show(path)} is no place to mount at", "an absolute path without blanks, as /scratch"
        )
    if parts[0] in _OWN:
        raise Mistake(f"{show(path)} is minOS's own", "as /scratch or /data")
    return path


def _volume(value: object) -> dict[str, Any]:
    known: dict[str, Callable[[object], Any]] = {
        "size": _size_or_rest,
        "type": _type,
        "mount": mount_point,
        "options": matching(_OPTIONS, "mount options"),
        "label": matching(NAME, "label"),
        "mode": _mode,
        "keeps": _flag,
    }
    usual = {
        "size": 0,
        "type": "ext4",
        "mount": "",
        "options": "",
        "label": "",
        "mode": "",
        "keeps": False,
    }
    fields = usual | mapping(
        value
        if not isinstance(value, dict)
        else {key: word for key, word in value.items() if (key, word) not in usual.items()},
        known,
    )
    if fields["type"] == "swap" and (fields["mount"] or fields["mode"] or fields["keeps"]):
        raise Mistake("swap is mounted nowhere")
    if fields["type"] != "swap" and not fields["mount"] and not fields["keeps"]:
        raise Mistake(
            "it has no mount",
            "where it is mounted in minOS, as /scratch: images see it by a mount of kind bind",
        )
    return fields


def _type(value: object) -> str:
    if value not in ("ext4", "xfs", "swap"):
        raise Mistake(f"expected ext4, xfs or swap, found {describe(value)}")
    return str(value)


def _mode(value: object) -> str:
    mode = f"{value:o}" if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(mode, str) or not _MODE.fullmatch(mode):
        raise Mistake(
            f"expected the mode of the mounted directory, found {describe(value)}", 'as "1777"'
        )
    return mode


def _volumes(value: object) -> dict[str, dict[str, Any]]:
    """The volumes of a layout, by their names, in their order."""
    if not isinstance(value, dict) or not value or len(value) > MAX_VOLUMES:
        raise Mistake(
            f"expected up to {MAX_VOLUMES} volumes by their names, found {describe(value)}",
            "as {scratch: {type: xfs, mount: /scratch}}",
        )
    volumes = {}
    for name, its in value.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Mistake(
                f"{show(str(name))} cannot be a volume's name", "1 to 12 of a-z 0-9, a letter first"
            )
        try:
            volumes[name] = _volume(its)
        except Mistake as mistake:
            raise Mistake(f"volume {name}: {mistake.message}", mistake.hint) from None
    if sum(one["size"] == 0 for one in volumes.values()) > 1:
        raise Mistake(
            "two volumes have no size of their own, or rest", "the others need one, as size: 16G"
        )
    return volumes


class Layout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of some disks."""

    match: Annotated[
        dict[str, Any],
        Check(_match),
        Meta(
            description='Which disks: {min: 400G, max: 2T, model: "INTEL*", serial: [S1, S2], '
            'path: "*0000:00:1f.2*", rotational: '
            "false, transport: nvme}; all of it holds for each. `layercake machine disks NODE` has "
            "these words."
        ),
    ]
    count: Annotated[
        int | Literal["all"],
        Check(_count),
        Meta(description="How many disks that must be, or all."),
    ] = 1
    raid: Annotated[
        Literal["", 0, 1, 10],
        Meta(
            description="The level of a RAID over them: 0, 1 or 10. Without one, several disks are "
            "one volume group."
        ),
    ] = ""
    encrypt: Annotated[
        Literal["", "boot", "kept"],
        Meta(
            description="LUKS, with a key that nobody keeps beyond the boot (boot), or that the "
            "head keeps (kept)."
        ),
    ] = ""
    kept: Annotated[
        bool,
        Meta(
            description="Whether what is on them outlives a boot. If not, they are made anew in "
            "each: a scratch."
        ),
    ] = False
    volumes: Annotated[
        dict[str, dict[str, Any]],
        Check(_volumes),
        Meta(
            description="The file systems, by their names: {scratch: {size: 400G or rest, type: "
            "ext4, xfs or swap, mount: /scratch, "
            'options: noatime, label: scratch, mode: "1777", keeps: true}}. `keeps`: containers '
            "that `keep` directories "
            "have them there."
        ),
    ]
    wipe: Annotated[
        list[str],
        Check(_word_list),
        Meta(
            description="Disks that may be made anew though they hold something else, by their "
            "serial numbers or WWIDs. Each is "
            "touched only after a person has said so: `layercake machine wipe NODE DISK`."
        ),
    ] = msgspec.field(default_factory=list)


class Disks(NodePart, frozen=True, kw_only=True):
    """The layouts of a node's disks, by their names."""

    KEY: ClassVar[str] = "disks"
    ENTRY: ClassVar[type[msgspec.Struct] | None] = Layout
    WHOLE: ClassVar[bool] = True

    entries: dict[str, Layout] = msgspec.field(default_factory=dict)


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All layouts of a node. Raises Mistake for what does not go together."""
    if len(given) > MAX_LAYOUTS:
        raise Mistake(f"{len(given)} layouts, a node has {MAX_LAYOUTS} at most")
    layouts: dict[str, Layout] = {}
    places: dict[str, str] = {}
    keeps = ""
    for name, fields in given.items():
        if not NAME.fullmatch(name):
            raise Mistake(
                f"{show(name)} cannot be a layout's name",
                "1 to 12 of a-z 0-9, a letter first",
                f"{name}.",
            )
        missing = next((key for key in ("match", "volumes") if key not in fields), "")
        if missing:
            raise Mistake(f"{missing} is missing", field=f"{name}.")
        one = layouts[name] = Layout(**fields)
        _check(name, one)
        for volume, its in one.volumes.items():
            if its["mount"]:
                _check_place(name, volume, its["mount"], places)
                places[its["mount"]] = f"{name} {volume}"
            if its["keeps"] and keeps:
                raise Mistake(
                    f"volume {volume} keeps what containers keep, and {keeps} does",
                    field=f"{name}.volumes",
                )
            keeps = f"{name} {volume}" if its["keeps"] else keeps
    return {"entries": layouts}


def _check_place(layout: str, volume: str, place: str, others: Mapping[str, str]) -> None:
    """Raises Mistake if a volume is mounted over one of `others`, or below one: {place: whose}."""
    for other, whose in others.items():
        below = fnmatchcase(place, f"{other}/*") or fnmatchcase(other, f"{place}/*")
        if place == other or below:
            raise Mistake(
                f"{place} of volume {volume} lies with {other} of {whose}",
                "one is mounted over the other",
                f"{layout}.volumes",
            )


def _check(name: str, one: Layout) -> None:
    """Raises Mistake."""
    if one.raid != "" and one.count == 1:
        raise Mistake(f"RAID {one.raid} has several disks", "count: 2, or all", f"{name}.count")
    if (one.encrypt == "kept") != one.kept and one.encrypt:
        raise Mistake(
            "a key that is kept goes with `kept: true`, one for the boot without",
            "otherwise nobody could read what is kept",
            f"{name}.encrypt",
        )
    if any(volume["keeps"] for volume in one.volumes.values()) and not one.kept:
        raise Mistake("what containers keep needs `kept: true`", field=f"{name}.kept")
    if "min" in one.match and "max" in one.match and one.match["min"] > one.match["max"]:
        raise Mistake("min is above max: no disk is so", field=f"{name}.match")


def node_document(part: Disks | None) -> dict[str, Any]:
    """What a node is told with its desired state: its layouts; nothing where there are none."""
    if part is None:
        return {}
    return {
        "disks": [
            {
                "name": name,
                "match": one.match,
                "count": 0 if one.count == "all" else one.count,
                "raid": str(one.raid),
                "encrypt": one.encrypt,
                "kept": one.kept,
                "wipe": one.wipe,
                "volumes": [{"name": volume, **its} for volume, its in one.volumes.items()],
            }
            for name, one in part.entries.items()
        ]
    }


def view(part: Disks | None) -> dict[str, Any]:
    """What people see of it with the node: the names."""
    return {} if part is None else {"disks": sorted(part.entries)}


def warnings(part: Disks) -> tuple[str, ...]:
    """Said with every plan and status."""
    return tuple(
        f"disk {disk} of layout {name} may be made anew, whatever it holds, once a person says so"
        for name, one in part.entries.items()
        for disk in one.wipe
    )
