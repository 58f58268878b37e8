"""A node's release as a value: its steps in their order, and what comes after what. Nothing here
waits, writes or asks a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from layercake.fleet.store import WantedImage
from layercake.kraken.errors import Refused

STEPS = ("hold", "restart", "erase", "tpm", "forget", "bmc-password", "power-cycle")
"""In this order. A step that was begun and has not ended when the head goes is carried out again:
each has to bear that."""
MAX_DETAIL = 500
Result = Literal["", "done", "left", "failed"]
Witness = Literal["", "bmc", "tpm", "head", "node"]
"""Whose word it is that a step was done. bmc: the node's BMC, or a program in its place, has
switched the machine, so what spoke after that is what we have booted. tpm: a quote has shown the
same. head: the head has done it itself. node: nobody but the node, which may be its last user. "":
a head of an older version has not written it down."""
PROOF = ("restart", "erase", "tpm", "power-cycle")
"""The steps that show that nothing of the last user is left."""


class ReleaseStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step. Times are in seconds since the epoch, 0 for not yet. `result` left: there was nothing
    to do, or nothing that the head can do, `detail` says why; "": it is not over. `tries` counts
    how often it was begun. `witness`: whose word its end is."""

    name: str
    began: float
    ended: float = 0.0
    result: Result = ""
    detail: str = ""
    tries: int = 1
    witness: Witness = ""


class ErasedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a disk: the way that was used, seconds it took, its size in bytes, and whether
    a sample was read back as zeros."""

    model: str
    serial: str
    way: str
    seconds: float
    size: int
    verified: bool


class Ended(NamedTuple):
    """How a step ended."""

    result: Literal["done", "left", "failed"] = "done"
    detail: str = ""
    disks: Sequence[ErasedDisk] = ()
    left: Sequence[str] = ()


class KnownDisks(NamedTuple):
    """The serial numbers of the disks that a node has reported, and who has said that they are
    right: "" for nobody but the node, which its last user may have had report what he liked."""

    serials: frozenset[str] = frozenset()
    accepted_by: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release of a node. `by` asked for it at `asked`. It holds the node until it has ended; one
    that was abandoned, until a person has freed the node (`freed_by`). `before` are the images that
    were wanted, which are wanted again in the end; `force`: what runs is not waited for. `left` are
    disks that were not erased, and why. `confirmed_by` vouches for what nobody but the node
    says."""

    id: str
    node: str
    by: str
    asked: float
    steps: tuple[ReleaseStep, ...] = ()
    force: bool = False
    before: tuple[WantedImage, ...] = ()
    disks: tuple[ErasedDisk, ...] = ()
    left: tuple[str, ...] = ()
    ended: float = 0.0
    abandoned_by: str = ""
    freed_by: str = ""
    confirmed_by: str = ""

    @property
    def over(self) -> bool:
        """Whether every step has ended well, whoever says so."""
        return [step.name for step in self.steps if step.result in ("done", "left")] == list(STEPS)

    @property
    def unproven(self) -> tuple[str, ...]:
        """The steps of PROOF that nobody but the node says were done."""
        return tuple(
            step.name for step in self.steps if step.name in PROOF and step.witness == "node"
        )

    @property
    def done(self) -> bool:
        """Whether every step has ended well, by somebody else's word than the node's."""
        return self.over and bool(self.confirmed_by or not self.unproven)

    @property
    def proves_disks(self) -> bool:
        """Whether its disks are the node's by somebody else's word."""
        return self.done and any(
            step.name == "erase" and step.witness in ("bmc", "tpm") for step in self.steps
        )

    @property
    def waits(self) -> bool:
        """Whether every step has ended, and a person has to confirm it."""
        return self.over and not self.done and not self.abandoned_by

    @property
    def failed(self) -> bool:
        """Whether it waits for a person: to try again, or to abandon it."""
        return not self.abandoned_by and bool(self.steps) and self.steps[-1].result == "failed"

    @property
    def holds(self) -> bool:
        """Whether nothing may boot on the node."""
        return not self.done and not self.freed_by

    @property
    def next(self) -> str:
        """The step that is to be carried out now, again if it was begun before; empty where there
        is none."""
        if self.abandoned_by or self.failed:
            return ""
        if self.steps and not self.steps[-1].result:
            return self.steps[-1].name
        return STEPS[len(self.steps)] if len(self.steps) < len(STEPS) else ""

    @property
    def stuck(self) -> bool:
        """Whether it holds the node and does not go on by itself."""
        return self.holds and not self.next

    @property
    def why(self) -> str:
        """Why the node is held, for people; empty where it is not."""
        if not self.holds:
            return ""
        if self.abandoned_by:
            return (
                f"its release was abandoned by {self.abandoned_by}, and it is held until a "
                "person frees it"
            )
        if self.failed:
            return f"its release failed at {self.steps[-1].name}: {self.steps[-1].detail}"
        if self.waits:
            return (
                f"its release waits for a person: {', '.join(self.unproven)} rest on the node's "
                "own word, no BMC has switched it and no TPM has shown what it has booted"
            )
        return (
            f"it is being released: {self.next}, step {STEPS.index(self.next) + 1} of {len(STEPS)}"
        )


def began(release: Release, now: float) -> Release:
    """With its next step begun; once more, if the head went in the middle of it. Raises Refused
    where there is none."""
    if not (name := release.next):
        raise Refused(
            f"cannot go on with the release of {release.node}: {release.why or 'it has ended'}"
        )
    last = release.steps[-1] if release.steps else None
    if last is not None and last.name == name:
        again = msgspec.structs.replace(
            last, began=now, ended=0.0, result="", detail="", tries=last.tries + 1
        )
        return msgspec.structs.replace(release, steps=(*release.steps[:-1], again))
    return msgspec.structs.replace(
        release, steps=(*release.steps, ReleaseStep(name=name, began=now))
    )


def ended(
    release: Release,
    result: Literal["done", "left", "failed"],
    now: float,
    detail: str = "",
    disks: Sequence[ErasedDisk] = (),
    left: Sequence[str] = (),
    witness: Witness = "",
) -> Release:
    """With its running step ended, by the word of `witness`. `disks` and `left` take the place of
    what was known of them. Raises Refused where none runs."""
    if not release.steps or release.steps[-1].result or release.abandoned_by:
        raise Refused(f"cannot end a step of the release of {release.node}: none is running")
    step = msgspec.structs.replace(
        release.steps[-1], result=result, ended=now, detail=detail[:MAX_DETAIL], witness=witness
    )
    found = msgspec.structs.replace(
        release,
        steps=(*release.steps[:-1], step),
        disks=tuple(disks) or release.disks,
        left=tuple(left) or release.left,
    )
    return msgspec.structs.replace(found, ended=now) if found.done else found


def retried(release: Release) -> Release:
    """Tried again from the step that failed. Raises Refused for one that did not fail."""
    if not release.failed:
        raise Refused(f"cannot try the release of {release.node} again: it has not failed")
    last = msgspec.structs.replace(release.steps[-1], result="", ended=0.0)
    return msgspec.structs.replace(release, steps=(*release.steps[:-1], last))


def abandoned(release: Release, by: str, now: float) -> Release:
    """Given up: no step is begun any more, and the node stays held. Raises Refused where there is
    nothing to give up."""
    if not release.holds or release.abandoned_by:
        raise Refused(
            f"cannot abandon the release of {release.node}: {release.why or 'it has ended'}"
        )
    return msgspec.structs.replace(release, abandoned_by=by, ended=now)


def confirmed(release: Release, by: str, now: float) -> Release:
    """A person vouches for what nobody but the node says. Raises Refused for one that does not wait
    for that."""
    if not release.waits:
        raise Refused(
            f"cannot confirm the release of {release.node}: {release.why or 'it has ended'}"
        )
    return msgspec.structs.replace(release, confirmed_by=by, ended=now)


def freed(release: Release, by: str) -> Release:
    """A person takes an abandoned release's hold away. Raises Refused for one that was not
    abandoned."""
    if not release.abandoned_by or release.freed_by:
        raise Refused(f"cannot free {release.node}: no abandoned release holds it")
    return msgspec.structs.replace(release, freed_by=by)
