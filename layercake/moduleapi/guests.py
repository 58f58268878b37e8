"""The addresses of a network that guests get, machines that are not in the inventory, as its key
`guests` has them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence

from layercake.base.text import describe, show
from layercake.moduleapi.fields import Mistake, text

MOST = 4096
MOST_OF_ALL = 65536
MOST_RANGES = 16
"""Addresses for guests of one network, of all networks together, and ranges of one network: what is
kept of guests is bounded."""
LEASE_S = 600
"""For how long a guest's address is leased where the network does not say."""
HOW = "write ranges of IPv4 addresses: [10.20.0.200-10.20.0.250]"


def ranges(value: object) -> tuple[str, ...]:
    """Ranges of IPv4 addresses, FIRST-LAST."""
    if not isinstance(value, list):
        raise Mistake(f"expected a list of ranges, found {describe(value)}", HOW)
    if len(value) > MOST_RANGES:
        raise Mistake(f"{len(value)} ranges, at most {MOST_RANGES} fit")
    return tuple(_range(text(item)) for item in value)


def _range(word: str) -> str:
    first, dash, last = word.partition("-")
    try:
        ends = (
            ipaddress.IPv4Address(first.strip()),
            ipaddress.IPv4Address((last if dash else first).strip()),
        )
    except ValueError:
        raise Mistake(f"{show(word)} is not a range of IPv4 addresses", HOW) from None
    if ends[1] < ends[0]:
        raise Mistake(f"{show(word)} ends before it begins", f"write {ends[1]}-{ends[0]}")
    return f"{ends[0]}-{ends[1]}"


def parsed(guests: Sequence[str]) -> list[range]:
    """The ranges, as numbers of IPv4 addresses."""
    pairs = [word.partition("-") for word in guests]
    return [
        range(int(ipaddress.IPv4Address(first)), int(ipaddress.IPv4Address(last)) + 1)
        for first, _, last in pairs
    ]


def count(guests: Sequence[str]) -> int:
    """How many addresses there are in ranges."""
    return sum(map(len, parsed(guests)))


def within(word: str, guests: Sequence[range]) -> bool:
    """Whether an address is in one of the ranges."""
    found = ipaddress.ip_address(word)
    return found.version == 4 and any(int(found) in one for one in guests)


def mistakes(
    guests: Sequence[str],
    subnet: ipaddress.IPv4Network | ipaddress.IPv6Network,
    others: Collection[str],
) -> Iterator[Mistake]:
    """What is wrong with the ranges of a network with this subnet. `others` are addresses that the
    network itself names."""
    last = None
    if guests and not isinstance(subnet, ipaddress.IPv4Network):
        yield Mistake(
            f"guests get IPv4 addresses, and {subnet} has none", "take `guests` out", "guests"
        )
        return
    for one in sorted(parsed(guests), key=lambda one: one.start):
        ends = ipaddress.IPv4Address(one.start), ipaddress.IPv4Address(one.stop - 1)
        if one.start <= int(subnet.network_address) or one.stop > int(subnet.broadcast_address):
            yield Mistake(
                f"the range {ends[0]}-{ends[1]} for guests is not within the host addresses of "
                f"{subnet}",
                HOW,
                "guests",
            )
        if last is not None and one.start < last:
            yield Mistake(
                f"the range {ends[0]}-{ends[1]} for guests overlaps with another", HOW, "guests"
            )
        last = max(one.stop, last or 0)
    if count(guests) > MOST:
        yield Mistake(
            f"{count(guests)} addresses for guests, a network has {MOST} at most", HOW, "guests"
        )
    for word in others:
        if within(word, parsed(guests)):
            yield Mistake(
                f"{word} is an address that the network itself names, and it is among those for "
                "guests",
                "leave it out of the ranges",
                "guests",
            )
