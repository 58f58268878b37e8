"""What is made of a TPM that has shown who it is and what was booted: what to record, and what is
wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from layercake.features.tpm.evidence.log import CONFIGURATION
from layercake.features.tpm.module import TpmPart
from layercake.features.tpm.table import Known, Shown, compared

BY_BOOT = frozenset({4, 8, 9})
"""The registers that what is booted goes into: with another boot set they are others. All else is
the firmware's."""
LASTING = frozenset({9})
"""Of these it counts what went in: there is something of each boot in them, its token."""
MOST_SETS = 4
"""So many boot sets' values are kept of a node: a rolled one can go back."""
NAMES = {
    0: "the firmware",
    1: "the firmware's settings",
    2: "drivers of cards",
    3: "settings of cards",
    4: "what the firmware started",
    5: "partitions",
    6: "the maker's own",
    7: "Secure Boot",
    8: "GRUB's commands",
    9: "what was read for the boot",
    14: "shim's keys",
}


class Verdict(NamedTuple):
    """What is known from now on, what of it is new (for people, "" if nothing is), and what is
    wrong, with the registers that differ. `unknown`: nothing is wrong but that no TPM was recorded
    before."""

    known: Known
    new: str = ""
    troubles: tuple[str, ...] = ()
    registers: tuple[int, ...] = ()
    unknown: bool = False


def place(register: int, boot: str) -> str:
    """Under what a register's value is expected: the boot set, "" for what does not depend on
    one."""
    return boot if register in BY_BOOT else ""


def judge(
    part: TpmPart, known: Known, shown: Shown, ordered: str, trusted: str, configuration: str = ""
) -> Verdict:
    """What becomes of what was shown. `ordered` is the boot set that the head had the node boot:
    another one is wrong, also one that was recorded once. `trusted` is the endorsement key that a
    person took in beforehand, "" for none; `configuration` what is wrong with GRUB's."""
    if known.ek and shown.ek != known.ek:
        return Verdict(
            known,
            troubles=(f"its TPM is another one: {shown.ek[:16]}, {known.ek[:16]} was recorded",),
        )
    unknown = not known.ek and part.tpm == "required" and shown.ek != trusted
    differ, missing = _compare(part, known, shown)
    troubles = []
    if not known.ek and shown.untrusted:
        troubles.append(f"its TPM is not one that can be recorded: {shown.untrusted}")
    if unknown:
        troubles.append("no TPM was recorded for it yet")
    troubles += _wrong_boot(part, known, shown, ordered)
    if configuration and CONFIGURATION in part.tpm_registers:
        troubles.append(configuration)
    troubles += map(_other_value, differ)
    if not troubles:
        return Verdict(recorded(known, shown, missing), _news(known, shown, missing))
    return Verdict(
        known, troubles=tuple(troubles), registers=differ, unknown=unknown and len(troubles) == 1
    )


def _other_value(register: int) -> str:
    return f"register {register} ({NAMES.get(register, 'of others')}) is not what was recorded"


def _wrong_boot(part: TpmPart, known: Known, shown: Shown, ordered: str) -> Iterator[str]:
    """What speaks against this being the boot that the head has ordered. A TPM counts its resets,
    and each such boot begins with one: a system that another one has started (kexec) shows the
    registers of that."""
    if not BY_BOOT.isdisjoint(part.tpm_registers) and shown.boot != ordered:
        booted = shown.boot or "no boot set"
        yield f"it says that it has booted {booted}, it was to boot {ordered or 'none'}"
    least = known.resets if shown.window == known.window else known.resets + 1
    if known.ek and known.window and shown.resets < least:
        yield (
            f"its TPM was not reset for this boot: it counts {shown.resets} resets, "
            f"{known.resets} in the boot before"
        )


def _compare(part: TpmPart, known: Known, shown: Shown) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The registers that differ from what was recorded, and those of which nothing was recorded
    yet."""
    differ = []
    missing = []
    for register in part.tpm_registers:
        expected = known.expected.get(place(register, shown.boot), {}).get(register)
        if expected is None:
            missing.append(register)
        elif expected != compared(shown, register):
            differ.append(register)
    return tuple(differ), tuple(missing)


def _news(known: Known, shown: Shown, missing: tuple[int, ...]) -> str:
    """What is recorded now that was not before, for people."""
    news = []
    if not known.ek:
        issuer = f" of {shown.issuer}" if shown.issuer else ""
        news.append(f"TPM {shown.ek[:16]}{issuer}")
    if missing:
        boot = f" with boot set {shown.boot}" if shown.boot else ""
        news.append(f"registers {', '.join(map(str, missing))}{boot}")
    return " and ".join(news)


def recorded(known: Known, shown: Shown, registers: tuple[int, ...]) -> Known:
    """What is known when a TPM is taken as it was shown, with the values of these registers."""
    expected = {name: dict(values) for name, values in known.expected.items()}
    for register in registers:
        expected.setdefault(place(register, shown.boot), {})[register] = compared(shown, register)
    return replace(
        known,
        ek=shown.ek,
        since=known.since or shown.at,
        expected=_bounded(expected, shown.boot),
        resets=shown.resets,
        window=shown.window,
    )


def _bounded(expected: Mapping[str, dict[int, str]], boot: str) -> dict[str, dict[int, str]]:
    """Without the boot sets that were recorded first, when there are too many."""
    sets = [name for name in expected if name and name != boot]
    gone = set(sets[: max(0, len(sets) - MOST_SETS + 1)])
    return {name: values for name, values in expected.items() if name not in gone}
