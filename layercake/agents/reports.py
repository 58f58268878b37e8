"""What the head keeps of a node from what its agent tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from imageapi import events as images
from imageapi.spec.health import DEGRADED, UNHEALTHY
from layercake.fleet.store import Card, Interface, Leg, NodeClock, Record
from layercake.kraken.events import EventKind
from minos.build.sets import NAME
from minos.events import AGENT, AGENT_SWAP_FAILED, CLOCK, HARDWARE, NETWORK, NO_TIME, NODE_API

_MAX_CONTAINERS, _MAX_CARDS, _MAX_OFF_MS = 200, 64, 1e9
_MAX_INTERFACES, _MAX_OF_ONE = 128, 64
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "name": str,
    "digest": str,
    "state": str,
    "health": str,
    "pid": int,
    "started_s": (int, float, type(None)),
    "retries": int,
    "last_error": str,
    "error": str,
    "retry_in_s": (int, float, type(None)),
}


def containers(data: object) -> tuple[dict[str, Any], ...]:
    """How a node says its containers are, as far as it is well-formed: it goes to people's
    screens."""
    found = []
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, dict) and all(
            isinstance(entry.get(name), kind) for name, kind in _FIELDS.items()
        ):
            shown = {name: entry.get(name) for name in _FIELDS}
            found.append(
                {
                    name: value[:500] if isinstance(value, str) else value
                    for name, value in shown.items()
                }
            )
    return tuple(found[:_MAX_CONTAINERS])


def cards(data: object) -> tuple[Card, ...]:
    """A node's network cards as it says, as far as they are well-formed."""
    found = []
    for entry in data[:_MAX_CARDS] if isinstance(data, list) else []:
        if isinstance(entry, dict):
            words = {
                k: v[:80]
                for k in ("slot", "name", "mac", "driver", "id")
                if isinstance(v := entry.get(k), str)
            }
            absent = entry.get("absent")
            found.append(
                Card(
                    **words,
                    absent=tuple(str(m)[:80] for m in absent[:8])
                    if isinstance(absent, list)
                    else (),
                )
            )
    return tuple(found)


def interfaces(data: object) -> tuple[Interface, ...]:
    """A node's interfaces as it says, as far as they are well-formed."""
    entries = data[:_MAX_INTERFACES] if isinstance(data, list) else []
    return tuple(
        _interface(entry)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    )


def _interface(entry: Mapping[str, Any]) -> Interface:
    def word(name: str, most: int = 80) -> str:
        return said[:most] if isinstance(said := entry.get(name), str) else ""

    def some(name: str) -> list[Any]:
        return said[:_MAX_OF_ONE] if isinstance(said := entry.get(name), list) else []

    mtu = entry.get("mtu")
    return Interface(
        word("name"),
        word("kind"),
        word("state"),
        word("mac"),
        mtu if type(mtu) is int and 0 <= mtu < 1 << 32 else 0,
        tuple(str(one)[:80] for one in some("addresses")),
        tuple(str(one)[:120] for one in some("routes")),
        tuple(
            Leg(str(leg.get("name"))[:80], str(leg.get("state"))[:80])
            for leg in some("legs")
            if isinstance(leg, dict)
        ),
        word("trouble", 500),
    )


def clock(data: Mapping[str, Any]) -> NodeClock | None:
    """A node's clock as it says, None if that is not well-formed."""
    server, off = data.get("server"), data.get("off_ms")
    if (
        not isinstance(server, str)
        or isinstance(off, bool)
        or not isinstance(off, int | float)
        or abs(off) >= _MAX_OFF_MS
    ):
        return None
    return NodeClock(server[:80], float(off))


def heard(record: Record, kind: EventKind, text: str, data: Mapping[str, Any]) -> bool:
    """Keeps what is to be known of a node from one of its events: what it has staged, and how its
    containers are. Whether anything was."""
    if kind is images.STAGED:
        digest = str(data.get("digest", ""))
        if digest not in {i.digest for i in record.stage}:
            return False
        record.staged |= {digest}
    elif kind is images.STAGE_FAILED:
        record.stage_error = str(data.get("error") or text)[:500]
    elif kind in (images.UNHEALTHY, images.DEGRADED, images.HEALTHY):
        record.unhealthy = "" if kind is images.HEALTHY else text[:500]
    elif kind is images.CONTAINERS:
        record.containers = containers(data.get("containers"))
        record.unhealthy = next(
            (c["error"] for c in record.containers if c["health"] in (UNHEALTHY, DEGRADED)), ""
        )
    elif kind is NODE_API:
        port = data.get("port")
        record.api_port = port if isinstance(port, int) and 0 < port < 65536 else 0
        has, mark = data.get("certificate"), data.get("authorities")
        if isinstance(has, int) and 0 <= has < 1 << 31 and isinstance(mark, str):
            record.trust = replace(record.trust, has=has, authorities=mark[:64])
    elif kind is HARDWARE:
        record.cards = cards(data.get("cards"))
    elif kind is NETWORK:
        record.interfaces = interfaces(data.get("interfaces"))
    elif kind is CLOCK:
        record.clock = clock(data)
    elif kind is NO_TIME:
        record.clock = None
    elif kind is AGENT:
        record.boots = replace(
            record.boots, runs=set_name(data.get("boot")), agent_runs=set_name(data.get("agent"))
        )
    elif kind is AGENT_SWAP_FAILED:
        if data.get("ask") != record.boots.ask:
            return False
        record.boots = replace(record.boots, agent_error=text[:500])
    else:
        return False
    return True


def set_name(value: object) -> str:
    """The name of a boot set as a node says it, "" if it is none."""
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""
