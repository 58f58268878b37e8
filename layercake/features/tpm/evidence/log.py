"""The event log of a node, as the node has read it: what went into which register. Its digests are
held against the quote. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import msgspec

from layercake.base.text import printable
from minos.tpm.log import MOST_EVENTS, MOST_TEXT

MOST_SHOWN = 5
_COMMAND_LINE = "LOADED_IMAGE::LoadOptions"
"""What is said of the kernel's command line (Linux, drivers/firmware/efi/libstub)."""
CONFIGURATION = 9
"""The register that GRUB's configuration goes into."""
_OF_NODE = "/node/"
"""Where a node's GRUB configuration is."""
_SHA256 = 32
_STARTS = tuple(bytes(_SHA256 - 1) + bytes((locality,)) for locality in (0, 3, 4))
"""What a register begins with: all zeros; register 0 also with who has started the TPM (Firmware
Profile, section 10.4.5.3)."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """Something that went into a register: its kind, its SHA-256, and what the node says that it
    is."""

    register: int
    kind: str
    digest: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}".strip()


def read(said: object) -> tuple[Step, ...]:
    """The log of what came in as JSON, without what is not as agreed. It goes to people's
    screens."""
    found = []
    for one in said[:MOST_EVENTS] if isinstance(said, list) else []:
        if not isinstance(one, list) or len(one) != 4:
            continue
        register, kind, digest, text = one
        if (
            type(register) is int
            and 0 <= register < 24
            and all(isinstance(word, str) for word in (kind, digest, text))
            and _is_digest(digest)
        ):
            found.append(
                Step(register, printable(kind)[:40], digest.lower(), printable(text[:MOST_TEXT]))
            )
    return tuple(found)


def _is_digest(word: str) -> bool:
    try:
        return len(word) == 2 * _SHA256 and len(bytes.fromhex(word)) == _SHA256
    except ValueError:
        return False


def replayed(steps: Iterable[Step], register: int, start: bytes = bytes(_SHA256)) -> str:
    """What a register is after all that went into it, in hex (TPM2_PCR_Extend)."""
    value = start
    for one in steps:
        if one.register == register:
            value = hashlib.sha256(value + bytes.fromhex(one.digest)).digest()
    return value.hex()


def of_one_boot(step: Step) -> bool:
    """Whether it is another one in each boot: what holds the token, GRUB's configuration and the
    kernel's command line."""
    return step.text.endswith(_COMMAND_LINE) or (
        _OF_NODE in step.text and step.text.endswith(".cfg")
    )


def configuration_trouble(steps: Iterable[Step], sent: str) -> str:
    """Why GRUB has not read the configuration that the head has sent for this boot, by its SHA-256,
    "" for one that has sent none; "" if it has. The kernel's command line is in it. Which step is
    the configuration is the node's word, but no other file has its digest."""
    read = [
        one.digest
        for one in steps
        if one.register == CONFIGURATION
        and of_one_boot(one)
        and not one.text.endswith(_COMMAND_LINE)
    ]
    if not sent:
        return "GRUB has read a configuration that the head has not sent" if read else ""
    if not read or any(digest != sent for digest in read):
        return "GRUB has not read the configuration that the head has sent for this boot"
    return ""


def lasting(steps: Sequence[Step], register: int, value: str) -> str:
    """Stands for what went into a register, each in its place, but for what is of one boot; "" for
    a log that does not lead to what is in it. That something is of one boot is the node's word: it
    counts in the same places each time."""
    own = [one for one in steps if one.register == register]
    if replayed(own, register) != value:
        return ""
    return hashlib.sha256(
        b"".join(bytes(_SHA256) if of_one_boot(one) else bytes.fromhex(one.digest) for one in own)
    ).hexdigest()


def difference(was: Sequence[Step], now: Sequence[Step], register: int, value: str) -> str:
    """What went into a register that did not go into it before, and the other way round, for
    people. `value` is what is in it now: a log that does not lead to it says nothing, and that is
    said."""
    before = [step for step in was if step.register == register]
    after = [step for step in now if step.register == register]
    if not after:
        return "the node has no event log of it"
    starts = _STARTS[: 1 if register else None]
    if value not in {replayed(after, register, start) for start in starts}:
        return "the node's event log does not lead to what is in it: the log is not to be believed"
    if not before:
        return "there is no event log of before to hold it against"
    lines = [line for old, new in zip_longest(before, after) if (line := _change(old, new))]
    if not lines:
        return "the event logs are the same"
    more = f", and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return "; ".join(lines[:MOST_SHOWN]) + more


def _change(old: Step | None, new: Step | None) -> str:
    """How two steps in the same place differ, for people; "" for steps that do not."""
    if old is None:
        return f"now {new}"
    if new is None:
        return f"{old} is gone"
    if old.digest == new.digest or (of_one_boot(old) and of_one_boot(new)):
        return ""
    return f"{new} is another one" if str(old) == str(new) else f"{new}, it was {old}"
