"""By what a machine is recognised: the switch port of a card, what option 82 of its DHCP says, or a
serial number. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from layercake.features.machines.hardware.report import Report
from layercake.moduleapi.strangers import option82
from minos.survey.sanitize import identity


class Claim(msgspec.Struct, frozen=True):
    """Something that tells one machine from all others, as it is compared, and as it is shown."""

    kind: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


def at_port(switch: str, port: str) -> Claim:
    """The port of a switch. Names of switches are compared without their domain, and all without
    case."""
    name = switch.strip().lower()
    short = name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]
    return Claim("port", f"{short} {port.strip().lower()}")


def serial(number: str) -> Claim | None:
    """A serial number; None for what firmware says where nobody wrote one."""
    found = identity(number)
    return Claim("serial", found.lower()) if found else None


def relayed(relay: str, circuit: str, remote: str) -> Claim:
    """Where a DHCP relay or a switch says that a machine is (option 82)."""
    return Claim("option 82", option82(relay, circuit, remote))


def relayed_claims(relay: str, circuit: str, remote: str) -> tuple[Claim, ...]:
    """All that such words can be in an inventory: with the relay, and where the switch has a name
    of its own, without it."""
    if not circuit:
        return ()
    return tuple(
        dict.fromkeys(
            (relayed(relay, circuit, remote), *((relayed("", circuit, remote),) if remote else ()))
        )
    )


def of(report: Report) -> tuple[Claim, ...]:
    """All by which the machine of a report can be recognised."""
    return tuple(dict.fromkeys(_of(report)))


def _of(report: Report) -> Iterator[Claim]:
    for one in report.neighbours.values():
        if one.switch and one.port:
            yield at_port(one.switch, one.port)
            if one.port_text:
                yield at_port(one.switch, one.port_text)
    number = serial(report.smbios.system.serial)
    if number is not None:
        yield number


def macs(report: Report) -> tuple[str, ...]:
    """The MAC addresses of its network cards, without those on USB, which identify nobody."""
    return tuple(
        dict.fromkeys(
            card.mac
            for card in report.cards
            if len(card.mac) == 17 and card.kind == "ethernet" and not card.usb
        )
    )


def shared(claims: Iterable[Claim], others: Iterable[Claim]) -> list[Claim]:
    """Those that two have in common."""
    also = set(others)
    return [claim for claim in claims if claim in also]
