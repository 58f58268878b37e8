"""What is answered to a query: the site's own names, or that others are to be asked. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from pxe.dns.zone import Found, Zone
from pxe.packets import dns
from pxe.packets.dns import Query, Rcode, Type


class Outcome(enum.Enum):
    """What becomes of a query."""

    ANSWERED = "answered"
    NO_SUCH_NAME = "no-such-name"
    REFUSED = "refused"
    FORWARD = "forward"
    NOT_TOLD = "not-told"


@dataclass(frozen=True, slots=True)
class Decision:
    """`reply` is empty for what has to be forwarded."""

    outcome: Outcome
    reply: bytes = b""


def decide(
    query: Query, zone: Zone, *, forwards: bool, room: int = 0, told: bool = True
) -> Decision:
    """What a client of ours gets. `forwards`: whether there are servers to ask for other names.
    `room` as for `packet.reply`. `told`: whether all names, and so all zones, are known;
    else nobody is told that there is none, which would be remembered (RFC 2308, section 5)."""
    flags = dns.RA if forwards else 0
    if query.version:
        return Decision(Outcome.REFUSED, dns.reply(query, Rcode.BADVERS, room=room))
    rcode = _refusal_code(query)
    if rcode is not None:
        return Decision(Outcome.REFUSED, dns.reply(query, rcode, flags=flags, room=room))
    records = zone.find(query.key, query.type)
    if not told and (records is None or not records.answers):
        return Decision(Outcome.NOT_TOLD, not_yet(query, flags=flags, room=room))
    if records is None:
        if forwards and query.flags & dns.RD:
            return Decision(Outcome.FORWARD)
        return Decision(Outcome.REFUSED, dns.reply(query, Rcode.REFUSED, flags=flags, room=room))
    reply = dns.reply(
        query,
        records.rcode,
        _records(query, records.answers, zone.ttl),
        _authority(query, records, zone),
        _records(query, records.extra, zone.ttl),
        flags=flags | dns.AA,
        room=room,
    )
    return Decision(Outcome.NO_SUCH_NAME if records.rcode else Outcome.ANSWERED, reply)


def _authority(query: Query, records: Found, zone: Zone) -> tuple[bytes, ...]:
    """The zone's SOA record, where there is no answer (RFC 2308, section 3)."""
    if query.type == Type.ANY or any(kind == query.type for _, kind, _ in records.answers):
        return ()
    return (_record(query, records.apex, Type.SOA, zone.ttl, zone.soa(records.apex)),)


def _refusal_code(query: Query) -> Rcode | None:
    """The code by which a kind of query is refused whatever its name is, None if it is not."""
    if query.type in (Type.AXFR, Type.IXFR) or query.cls != dns.IN:
        return Rcode.REFUSED
    if query.type == Type.OPT or 249 <= query.type < Type.IXFR:
        return Rcode.FORMERR
    return None


def not_yet(query: Query, *, flags: int = 0, room: int = 0) -> bytes:
    """What somebody gets who is to ask again."""
    return dns.reply(query, Rcode.SERVFAIL, flags=flags, room=room)


def refusal(query: Query) -> bytes:
    """What somebody gets who is no client of ours."""
    return dns.reply(query, Rcode.REFUSED)


def _records(query: Query, records: Iterable[tuple[bytes, int, bytes]], ttl: int) -> list[bytes]:
    return [_record(query, name, kind, ttl, data) for name, kind, data in records]


def _record(query: Query, owner: bytes, kind: int, ttl: int, data: bytes) -> bytes:
    return dns.record(dns.POINTER if owner == query.key else owner, kind, ttl, data)
