"""What is to be done with the disks: a pure function of the layouts and of what is on each disk.

Nothing that is not ours is ever to be touched: only what is blank, what a layout of this very node
has made (`lc:` in the names of its partitions), and what a person has given free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from layercake.base.text import count_of
from minos.agent.disks.layout import KEPT, Layout, read_mark, short
from minos.agent.disks.scan import Disk, matches
from minos.storage.block_devices import paths_of_disks

BLANK = "BLANK"
FOREIGN = "FOREIGN"
READY = "READY"
ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one layout: its state, why, and the disks that it has. READY: it was made, and can be
    brought up (`missing`: without so many members of its RAID). `spare` are blank disks in the
    places of those; `few`: more disks may still appear. `foreign` are those that hold something
    else."""

    layout: Layout
    state: str
    why: str = ""
    disks: tuple[Disk, ...] = ()
    missing: int = 0
    spare: tuple[Disk, ...] = ()
    few: bool = False
    foreign: tuple[Disk, ...] = ()


def judge(
    layouts: Sequence[Layout], disks: Sequence[Disk], node: str, free: Collection[str], again: bool
) -> list[Verdict]:
    """A verdict for each layout. `disks` have what they hold in `holds`; `free` are the kernel
    names of those that a person has given free; `again`: the node has not been started anew since
    the scratch was made, so that is what it was."""
    claimed = _claims(layouts, [paths[0] for paths in paths_of_disks(disks)])
    return [_one(layout, claimed, node, free, again) for layout in layouts]


def _claims(
    layouts: Iterable[Layout], disks: Iterable[Disk]
) -> Mapping[str, list[tuple[Disk, list[str]]]]:
    """{layout: its disks, each with the names of all layouts that it matches}."""
    layouts = list(layouts)
    claims: dict[str, list[tuple[Disk, list[str]]]] = {layout.name: [] for layout in layouts}
    for disk in disks:
        names = [layout.name for layout in layouts if matches(disk, layout.match)]
        for name in names:
            claims[name].append((disk, names))
    return claims


def _one(
    layout: Layout,
    claimed: Mapping[str, list[tuple[Disk, list[str]]]],
    node: str,
    free: Collection[str],
    again: bool,
) -> Verdict:
    disks = tuple(disk for disk, _ in claimed[layout.name])
    why = _unusable(claimed[layout.name])
    if why:
        return Verdict(layout, ERROR, why, disks)
    own = tuple(disk for disk in disks if is_made(disk, layout, node))
    if layout.kept and own:
        return _judge_kept_layout(layout, own, disks)
    miscounted = _miscounted(layout, disks)
    if miscounted is not None:
        return miscounted
    foreign = _foreign(disks, node, free)
    if foreign:
        why = "; ".join(f"disk {disk.shown} holds {disk.holds}" for disk in foreign)
        return Verdict(layout, FOREIGN, why, disks, foreign=foreign)
    if again and not layout.kept and len(own) == len(disks):
        return Verdict(layout, READY, disks=own)
    return Verdict(layout, BLANK, disks=disks)


def _unusable(claimed: list[tuple[Disk, list[str]]]) -> str:
    """What is wrong with the disks that a layout matches, each with all layouts that match it; ""
    if nothing is."""
    for disk, names in claimed:
        if len(names) > 1:
            return f"disk {disk.shown} matches the layouts {' and '.join(names)}"
    for disk, _ in claimed:
        if disk.holds.startswith("?"):
            return f"disk {disk.shown} cannot be read: {disk.holds[1:].strip()}"
    return ""


def _miscounted(layout: Layout, disks: tuple[Disk, ...]) -> Verdict | None:
    """The verdict on a layout that other disks match than so many as it needs, None if they are
    right."""
    right = len(disks) == layout.count if layout.count else bool(disks)
    if not right:
        seen = f": {', '.join(disk.shown for disk in disks)}" if disks else ""
        meant = f", not {layout.count}" if layout.count else ""
        found = count_of(len(disks), "disk") if layout.count else "no disk"
        why = f"it matches {found}{meant}{seen}"
        return Verdict(layout, ERROR, why, disks, few=len(disks) < (layout.count or 1))
    if layout.raid and len(disks) < 2:
        return Verdict(layout, ERROR, f"a RAID needs two disks, {disks[0].shown} is alone", disks)
    return None


def _foreign(disks: Iterable[Disk], node: str, free: Collection[str]) -> tuple[Disk, ...]:
    """The disks that hold something that is not this node's and that nobody set free."""
    return tuple(d for d in disks if d.holds and not is_ours(d, node) and d.name not in free)


def _judge_kept_layout(layout: Layout, own: tuple[Disk, ...], disks: tuple[Disk, ...]) -> Verdict:
    """Something of a layout that is kept is there, on `own` of the disks that match: it is brought
    up, and never made anew by itself."""
    count = layout.count or len(own)
    missing = count - len(own)
    if missing < 0:
        return Verdict(
            layout,
            ERROR,
            f"it is on {count_of(len(own), 'disk')}, not {count}: "
            f"{', '.join(d.shown for d in own)}",
            own,
        )
    if missing and not (layout.raid in ("1", "10") and len(own) >= (count + 1) // 2):
        return Verdict(
            layout,
            ERROR,
            f"{missing} of its {count} disks are not there; those that are: "
            f"{', '.join(d.shown for d in own)}",
            own,
            few=True,
        )
    blank = tuple(disk for disk in disks if disk not in own and not disk.holds)
    return Verdict(layout, READY, "", own, missing, blank[:missing])


def is_made(disk: Disk, layout: Layout, node: str) -> bool:
    """Whether a disk has just what a layout makes of it on this node, in full."""
    return bool(disk.partitions) and all(
        part.label == layout.mark(node) for part in disk.partitions
    )


def is_ours(disk: Disk, node: str) -> bool:
    """Whether all of a disk was made by some layout of this node that nobody wanted to keep, or was
    being made."""
    marks = [read_mark(part.label) for part in disk.partitions]
    return bool(marks) and all(
        mark is not None and mark.node == short(node) and mark.stage != KEPT for mark in marks
    )


def whole(verdicts: Iterable[Verdict]) -> str:
    """The value of the variable `disk`."""
    states = {one.state for one in verdicts}
    return next((state for state in (ERROR, FOREIGN, BLANK) if state in states), READY)
