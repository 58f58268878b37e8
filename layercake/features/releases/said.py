"""What a node says of an erasure, checked: it is hostile until then."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from layercake.base.text import cleaned
from layercake.features.releases.record import Erased
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
    def erased(self) -> tuple[Erased, ...]:
        """The disks that are done, for the evidence."""
        return tuple(
            Erased(
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
