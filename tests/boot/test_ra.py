"""Router advertisements: the bytes, against scapy's reading of them."""

from __future__ import annotations

import pytest
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6NDOptPrefixInfo

from pxe.ipv6.ra import build_advertisement, is_solicitation


def test_the_advertisement() -> None:
    message = ICMPv6ND_RA(build_advertisement("fd99::/64"))
    assert (message.type, message.code, message.routerlifetime, message.M, message.O) == (
        134,
        0,
        0,
        0,
        0,
    )
    prefix = message[ICMPv6NDOptPrefixInfo]
    assert (prefix.prefix, prefix.prefixlen, prefix.L, prefix.A, prefix.len) == (
        "fd99::",
        64,
        1,
        1,
        4,
    )
    assert prefix.preferredlifetime <= prefix.validlifetime


@pytest.mark.parametrize(
    ("message", "hops", "answer"),
    [
        (b"\x85\0\0\0\0\0\0\0", 255, True),
        (b"\x85\0\0\0\0\0\0\0", 254, False),
        (b"\x85\1\0\0\0\0\0\0", 255, False),
        (b"\x86\0\0\0\0\0\0\0", 255, False),
        (b"\x85\0\0", 255, False),
        (b"", 255, False),
    ],
)
def test_who_is_answered(message: bytes, hops: int, answer: bool) -> None:
    assert is_solicitation(message, hops) is answer
