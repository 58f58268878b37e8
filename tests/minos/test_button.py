"""What the kernel says of the power button."""

from __future__ import annotations

import struct

import pytest

from layercake.base.packets.netlink import NLMSG_ERROR, attribute
from layercake.kraken.errors import OperationFailed
from minos.agent.button import group_of, pressed


def message(body: bytes, kind: int = 24) -> bytes:
    """A message of generic netlink, as the kernel sends it."""
    return (
        struct.pack("=IHHII", 20 + len(body), kind, 0, 1, 0) + struct.pack("=BBH", 1, 1, 0) + body
    )


def event(kind: bytes = b"button/power", what: int = 0x80) -> bytes:
    """One of acpi_event: struct acpi_genl_event, 44 bytes."""
    return message(attribute(1, struct.pack("=20s15sxII", kind, b"LNXPWRBN:00", what, 1)))


@pytest.mark.parametrize(
    ("said", "is_it"),
    [
        (event(), True),
        (event(b"ac_adapter"), False),
        (event(b"button/sleep"), False),
        (event(what=2), False),
        (event(b"ac_adapter") + event(), True),
        (event()[:-1], False),
        (b"", False),
        (b"\xff" * 64, False),
        (message(b""), False),
        (message(attribute(1, b"button/power")), False),
        (message(attribute(2, b"x" * 44)), False),
    ],
)
def test_a_press_is_known_from_all_else(said: bytes, is_it: bool) -> None:
    assert pressed(said) is is_it


def family(*groups: tuple[bytes, int]) -> bytes:
    """The kernel's answer about a family."""
    told = b"".join(
        attribute(n, attribute(1, name) + attribute(2, struct.pack("=I", number)))
        for n, (name, number) in enumerate(groups, 1)
    )
    return message(attribute(1, struct.pack("=H", 24)) + attribute(7, told), 16)


def test_the_group_of_acpi_events() -> None:
    assert group_of(family((b"other\0", 3), (b"acpi_mc_group\0", 5))) == 5


@pytest.mark.parametrize(
    "answer",
    [family((b"other\0", 3)), family(), struct.pack("=IHHIIi", 20, NLMSG_ERROR, 0, 1, 0, -2), b""],
)
def test_a_machine_without_acpi_says_so(answer: bytes) -> None:
    with pytest.raises(OperationFailed, match="no ACPI events"):
        group_of(answer)
