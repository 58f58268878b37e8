"""The names that the head knows: a table that follows the nodes, each by itself. A change costs
what it changes, however many nodes there are.

A zone's top (apex) is a domain that nodes are in, or the reverse of a network of theirs. Names
outside of all of these, such as short ones, are zones of their own, of one name: nothing is said of
those beside or below.
"""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from layercake.moduleapi.network import AnyNetwork
from pxe.packets.dns import Rcode, Type, above, wire

_SOA_TIMES = (3600, 600, 86400)
_CHASED = frozenset({Type.A, Type.AAAA, Type.SRV})
_HINFO = b"\x07RFC8482\x00"
_REVERSE_4 = "in-addr.arpa"
ADDRESSES = (Type.A, Type.AAAA)


class Entry(NamedTuple):
    """One record of an owner. Where several owners claim a name, those of the lowest `rank` have
    it: a node's name goes before an alias, that before a BMC's. `node` is whose it is, "" for the
    head's own."""

    name: bytes
    type: int
    data: bytes
    rank: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to say of a name: records as (name, type, data). `apex` is the top of its
    zone."""

    apex: bytes
    rcode: Rcode
    answers: tuple[tuple[bytes, int, bytes], ...] = ()
    extra: tuple[tuple[bytes, int, bytes], ...] = ()


class Zone:
    """`head` is the name of the head in a domain, `domain` that of zones that are in none. `stamp`
    begins the serial numbers, which grow over restarts, and by one with each change."""

    def __init__(self, head: str, domain: str, stamp: int, ttl: int) -> None:
        self._head = wire(head)[:-1]
        self._domain = wire(domain)
        self.ttl = ttl
        self.serial = stamp & 0xFFFFFFFF
        self._table: dict[bytes, list[Entry]] = {}
        self._of: dict[str, tuple[tuple[Entry, ...], tuple[bytes, ...]]] = {}
        self._tops: Counter[bytes] = Counter()
        self._parents: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._table)

    def set_records(self, owner: str, entries: Iterable[Entry], tops: Iterable[bytes] = ()) -> None:
        """Gives an owner these records in the place of those it had. `tops` are the zones that it
        makes ours."""
        records = (tuple(entries), tuple(tops))
        if self._of.get(owner) == records:
            return
        self._remove_records(owner)
        self._of[owner] = records
        for top in records[1]:
            self._tops[top] += 1
        for entry in records[0]:
            self._table.setdefault(entry.name, []).append(entry)
            for name in above(entry.name):
                self._parents[name] += 1
        self._count()

    def remove(self, owner: str) -> None:
        """Takes an owner's records out; one that has none is fine."""
        if self._remove_records(owner):
            self._count()

    def _remove_records(self, owner: str) -> bool:
        old = self._of.pop(owner, None)
        if old is None:
            return False
        for top in old[1]:
            _less(self._tops, top)
        for entry in old[0]:
            held = self._table[entry.name]
            held.remove(entry)
            if not held:
                del self._table[entry.name]
            for name in above(entry.name):
                _less(self._parents, name)
        return True

    def _count(self) -> None:
        self.serial = self.serial + 1 & 0xFFFFFFFF

    def entries(self) -> Iterator[Entry]:
        """The records that count, name by name."""
        for name in self._table:
            yield from self.at(name)

    def tops(self) -> list[bytes]:
        """The zones that are ours."""
        return list(self._tops)

    def at(self, name: bytes) -> list[Entry]:
        """What counts of the records of a name."""
        held = self._table.get(name, [])
        if len(held) < 2:
            return held
        rank = min(entry.rank for entry in held)
        return [entry for entry in held if entry.rank == rank]

    def apex(self, name: bytes) -> bytes | None:
        """The zone of ours that a name is in, None if it is in none."""
        tops = self._tops
        return next(
            (top for top in above(name) if top in tops), name if name in self._table else None
        )

    def head_in(self, apex: bytes) -> bytes:
        """The head's name for a zone."""
        return self._head + (apex if self._head + apex in self._table else self._domain)

    def soa(self, apex: bytes) -> bytes:
        """The data of the zone's SOA record."""
        domain = apex if self._head + apex in self._table else self._domain
        return (
            self._head
            + domain
            + b"\x0ahostmaster"
            + domain
            + struct.pack("!IIIII", self.serial, *_SOA_TIMES, self.ttl)
        )

    def find(self, name: bytes, kind: int) -> Found | None:
        """What there is of a name (in lower case), None for one that is not ours."""
        apex = self.apex(name)
        if apex is None:
            return None
        if not self._exists(name, apex):
            return Found(apex, Rcode.NXDOMAIN)
        held = self.at(name)
        if kind == Type.ANY:
            return Found(apex, Rcode.NOERROR, ((name, Type.HINFO, _HINFO),))
        if name == apex and kind in (Type.SOA, Type.NS):
            return self._at_apex(apex, kind)
        answers = tuple((name, entry.type, entry.data) for entry in held if entry.type == kind)
        if not answers and held and held[0].type == Type.CNAME:
            return Found(apex, Rcode.NOERROR, self._alias(name, held[0].data, kind))
        extra = self._targets(answers) if kind == Type.SRV else ()
        return Found(apex, Rcode.NOERROR, answers, extra)

    def _exists(self, name: bytes, apex: bytes) -> bool:
        """Whether there is such a name: one with records, or above one that has some."""
        return name in self._table or name == apex or bool(self._parents[name])

    def _at_apex(self, apex: bytes, kind: int) -> Found:
        """The SOA or NS record at the top of a zone."""
        if kind == Type.SOA:
            return Found(apex, Rcode.NOERROR, ((apex, kind, self.soa(apex)),))
        target = self.head_in(apex)
        return Found(apex, Rcode.NOERROR, ((apex, kind, target),), self._addresses(target))

    def _alias(self, name: bytes, target: bytes, kind: int) -> tuple[tuple[bytes, int, bytes], ...]:
        """The CNAME record of a name, and what was asked for of the name that it stands for."""
        chased = [entry for entry in self.at(target) if entry.type == kind and kind in _CHASED]
        return ((name, Type.CNAME, target), *((target, entry.type, entry.data) for entry in chased))

    def _targets(
        self, services: tuple[tuple[bytes, int, bytes], ...]
    ) -> tuple[tuple[bytes, int, bytes], ...]:
        """The addresses of the hosts in SRV records."""
        return tuple(record for _, _, data in services for record in self._addresses(data[6:]))

    def _addresses(self, name: bytes) -> tuple[tuple[bytes, int, bytes], ...]:
        return tuple(
            (name, entry.type, entry.data) for entry in self.at(name) if entry.type in ADDRESSES
        )


def _less(counts: Counter[bytes], name: bytes) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def reverse(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """The name that an address is looked up by."""
    return wire(address.reverse_pointer)


def tops_of(network: AnyNetwork) -> tuple[bytes, ...]:
    """The reverse zones that are wholly within a network: at most 128, and one of a /64."""
    if network.version == 6:
        return (top_of_six(network),)
    octets = -(-network.prefixlen // 8)
    return tuple(
        wire(".".join([*reversed(str(part.network_address).split(".")[:octets]), _REVERSE_4]))
        for part in network.subnets(new_prefix=octets * 8)
    )


def top_of_six(prefix: ipaddress.IPv6Network) -> bytes:
    """The reverse zone of a /64."""
    return wire(".".join(prefix.network_address.reverse_pointer.split(".")[16:]))
