"""What a node says of an erasure, checked: it is hostile until then."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from layercake.base.text import cleaned, count_of, first_few
from layercake.features.releases.record import Ended, ErasedDisk
from layercake.kraken.errors import OperationFailed

_Text = Annotated[str, msgspec.Meta(max_length=300)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
MOST = 256
_Names = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=16)]


class LeftSaid(msgspec.Struct, frozen=True, kw_only=True):
    """A disk that is left, and why; `wrong`: it should not be. `names` are its lasting ones
    (imageapi.node.attach.disks.names)."""

    name: _Text
    names: _Names
    why: _Text
    wrong: bool = False


class DiskSaid(LeftSaid, frozen=True, kw_only=True):
    """A disk that is erased: `at` of its `size` bytes are done; `why` it failed."""

    model: _Text
    serial: _Text
    size: _Count
    state: Literal["running", "done", "failed"]
    at: _Count
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    way: _Text
    verified: bool

    @property
    def shown(self) -> str:
        """For people."""
        return (
            f"{self.name} "
            f"({', '.join(filter(None, (self.model, self.serial))) or 'without a name'})"
        )


class Erasing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a node is."""

    state: Literal["waiting", "running", "done", "failed"]
    disks: Annotated[tuple[DiskSaid, ...], msgspec.Meta(max_length=MOST)]
    left: Annotated[tuple[LeftSaid, ...], msgspec.Meta(max_length=MOST)]

    @property
    def erased(self) -> tuple[ErasedDisk, ...]:
        """The disks that are done, for the evidence."""
        return tuple(
            ErasedDisk(
                model=one.model,
                serial=one.serial,
                way=one.way,
                seconds=one.seconds,
                size=one.size,
                verified=True,
            )
            for one in self.disks
            if one.state == "done" and one.verified
        )

    @property
    def left_lines(self) -> list[str]:
        """The disks that are left, for the evidence."""
        return [f"{one.name}: {one.why}" for one in self.left]

    @property
    def failures(self) -> str:
        """What failed, for people."""
        return "; ".join(
            [f"disk {one.shown}: {one.why}" for one in self.disks if one.state == "failed"]
            + [f"disk {one.name}: {one.why}" for one in self.left if one.wrong]
        )

    @property
    def silent(self) -> bool:
        """Whether a drive erases itself: it says nothing until it is done."""
        return any(one.state == "running" and not one.at for one in self.disks)

    @property
    def mark(self) -> str:
        """Something that changes as long as it gets on: a large disk is at the same per cent for a
        long time."""
        return f"{self.state} {[(one.state, one.at) for one in self.disks]}"

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        if self.state == "waiting":
            return "drivers of its devices are still being loaded"
        going = [one for one in self.disks if one.state == "running"]
        done = sum(one.at for one in going)
        whole = sum(one.size for one in going)
        share = f", {100 * done // whole} % of the rest" if whole and done else ""
        return f"{len(self.disks) - len(going)} of {len(self.disks)} disks are erased{share}"


def erasing(answer: object) -> Erasing:
    """How far a node is, as it says. Raises OperationFailed for what makes no sense."""
    try:
        return msgspec.convert(cleaned(answer), Erasing)
    except msgspec.ValidationError as error:
        raise OperationFailed(
            f"the node's answer to the order to erase is not as agreed: {error}"
        ) from None


def proven(said: Erasing, known: Collection[str], reported: Collection[str], node: str) -> Ended:
    """How a node's erasure has ended, once it says that it is done. Each of the disks `known` by
    their serial numbers is to be among them: one that was pulled, or that no driver sees, is not
    passed over. One that nobody but the node has `reported` is told of: its last user could have
    any disk reported, and nobody could ever release the node."""
    listed: tuple[LeftSaid, ...] = (*said.disks, *said.left)
    seen = {name for one in listed for name in one.names}
    missing = _not_among(known, seen)
    untold = _not_among(reported, seen)
    erased = said.erased
    left = said.left_lines
    if len(erased) < len(said.disks):
        why = "the node says that it is done, and not of all disks that they were read back"
        return Ended("failed", why, erased, left)
    if missing:
        return Ended(
            "failed",
            f"disk {', '.join(missing[:5])} is known to be the node's, and is not there now (hint: "
            f"put it back and --retry; or `layercake machine accept {node}`, then --retry)",
            erased,
            left,
        )
    lacks = (
        f"{count_of(len(untold), 'disk')} missing that it reported before: {first_few(untold, 5)}"
    )
    return Ended(
        detail=count_of(len(erased), "disk")
        + (f", {len(left)} left" if left else "")
        + (f"; {lacks[:300]} (hint: `layercake machine accept {node}`)" if untold else ""),
        disks=erased,
        left=left,
    )


def _not_among(serials: Collection[str], seen: Collection[str]) -> list[str]:
    return [serial for serial in sorted(serials) if "_".join(serial.split()) not in seen]
