"""TPMs as a module of the head: what is asked of a node's TPM when it joins, and what only nodes
get that have shown theirs.

A module of its own, without mutations and without a process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe
from layercake.features.tpm.events import EVENTS
from layercake.moduleapi.fields import NEWER, Check, Mistake, text
from layercake.moduleapi.module import Module, NodePart, Part

MOST_REGISTER = 15
"""The registers above are started anew while a machine runs, or are for tests."""


def _registers(value: object) -> tuple[int, ...]:
    """Registers of a TPM."""
    if not isinstance(value, list) or any(
        type(one) is not int or not 0 <= one <= MOST_REGISTER for one in value
    ):
        raise Mistake(
            f"expected a list of registers, 0 to {MOST_REGISTER}, found {describe(value)}",
            "such as [4, 7]",
        )
    return tuple(sorted(set(value)))


def _directory(value: object) -> str:
    word = text(value)
    if word and (not Path(word).is_absolute() or ".." in Path(word).parts):
        raise Mistake(
            "expected the absolute path of a directory", "such as /etc/layercake/tpm-authorities"
        )
    return word


class TpmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TPMs of nodes."""

    authorities: Annotated[
        str,
        Check(_directory),
        Meta(
            description="A directory of certificates (*.pem) of the makers whose TPMs are taken: "
            "one without a certificate of theirs "
            "is not recorded. Empty: any TPM is.",
            extra=NEWER,
        ),
    ] = ""


class TpmPart(NodePart, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of a node's TPM."""

    tpm: Annotated[
        Literal["none", "recorded", "required"],
        Meta(
            description="What the node's TPM is asked for when it joins: nothing (none); who it is "
            "and what was booted, which is "
            "recorded, and what differs later is told (recorded); or a join is refused that does "
            "not show what was "
            "recorded (required)."
        ),
    ] = "none"
    tpm_registers: Annotated[
        tuple[int, ...],
        Check(_registers),
        Meta(
            description="The registers (PCRs) whose values are recorded, 0 to 15; [] for none. 4 "
            "is what the firmware has started, 7 "
            "the state and the keys of Secure Boot, 9 what GRUB has read."
        ),
    ] = (4, 7)
    secrets: Annotated[
        Literal["any", "quoted"],
        Meta(
            description="Which boots of the node get its secrets (files, keys of images and "
            "disks): any that has joined, or those "
            "whose TPM has shown who they are and what they have booted."
        ),
    ] = "any"


NOTHING = TpmPart()


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All of it. Raises Mistake for what does not go together."""
    if given.get("secrets", "any") == "quoted" and given.get("tpm", "none") == "none":
        raise Mistake(
            "secrets are for nodes whose TPM was quoted, and no TPM is asked for anything",
            "tpm: recorded, or required",
            "secrets",
        )
    if given.get("tpm_registers") and given.get("tpm", "none") == "none":
        raise Mistake(
            "tpm_registers is given, and no TPM is asked for anything: it would have no effect",
            "tpm: recorded, or required; or remove it",
            "tpm_registers",
        )
    return given


def view(part: TpmPart | None) -> dict[str, Any]:
    """What of it people see with the node."""
    return {} if part is None or part.tpm == "none" else {"tpm": part.tpm}


MODULE = Module(
    name="tpm",
    doc="What proves who a machine is, and what it has booted.",
    section="tpm",
    settings=TpmSettings,
    part=Part(TpmPart, complete, view=view, at_boot=("tpm", "tpm_registers")),
    events=EVENTS,
)
