"""What the head keeps of a node from what its agent tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from imageapi import events as images
from imageapi.spec.health import DEGRADED, UNHEALTHY
from layercake.fleet.store import Interface, Leg, NetworkCard, NodeClock, Record
from layercake.kraken.events import EventKind
from minos.build.sets import NAME
from minos.events import AGENT, AGENT_SWAP_FAILED, CLOCK, HARDWARE, NETWORK, NO_TIME, NODE_API

_MAX_CONTAINERS = 200
_MAX_CARDS = 64
_MAX_OFF_MS = 1e9
_MAX_INTERFACES = 128
_MAX_OF_ONE = 64
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


def cards(data: object) -> tuple[NetworkCard, ...]:
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
                NetworkCard(
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
    def text(name: str, most: int = 80) -> str:
        return said[:most] if isinstance(said := entry.get(name), str) else ""

    def some(name: str) -> list[Any]:
        return said[:_MAX_OF_ONE] if isinstance(said := entry.get(name), list) else []

    mtu = entry.get("mtu")
    return Interface(
        text("name"),
        text("kind"),
        text("state"),
        text("mac"),
        mtu if type(mtu) is int and 0 <= mtu < 1 << 32 else 0,
        tuple(str(one)[:80] for one in some("addresses")),
        tuple(str(one)[:120] for one in some("routes")),
        tuple(
            Leg(str(leg.get("name"))[:80], str(leg.get("state"))[:80])
            for leg in some("legs")
            if isinstance(leg, dict)
        ),
        text("trouble", 500),
    )


def clock(data: Mapping[str, Any]) -> NodeClock | None:
    """A node's clock as it says, None if that is not well-formed."""
    server = data.get("server")
    off = data.get("off_ms")
    if (
        not isinstance(server, str)
        or isinstance(off, bool)
        or not isinstance(off, int | float)
        or abs(off) >= _MAX_OFF_MS
    ):
        return None
    return NodeClock(server[:80], float(off))


Data = Mapping[str, Any]


def apply_report(record: Record, kind: EventKind, text: str, data: Data) -> bool:
    """Keeps what is to be known of a node from one of its events: what it has staged, and how its
    containers are. Whether anything was."""
    apply = _REPORTS.get(kind.name)
    return apply is not None and apply(record, text, data)


def _staged(record: Record, text: str, data: Data) -> bool:
    digest = str(data.get("digest", ""))
    if digest not in {image.digest for image in record.stage}:
        return False
    record.staged |= {digest}
    return True


def _stage_failed(record: Record, text: str, data: Data) -> bool:
    record.stage_error = str(data.get("error") or text)[:500]
    return True


def _unhealthy(record: Record, text: str, data: Data) -> bool:
    record.unhealthy = text[:500]
    return True


def _healthy(record: Record, text: str, data: Data) -> bool:
    record.unhealthy = ""
    return True


def _containers(record: Record, text: str, data: Data) -> bool:
    record.containers = containers(data.get("containers"))
    record.unhealthy = next(
        (c["error"] for c in record.containers if c["health"] in (UNHEALTHY, DEGRADED)), ""
    )
    return True


def _node_api(record: Record, text: str, data: Data) -> bool:
    port = data.get("port")
    record.api_port = port if isinstance(port, int) and 0 < port < 65536 else 0
    certificate = data.get("certificate")
    authorities = data.get("authorities")
    is_number = isinstance(certificate, int) and 0 <= certificate < 1 << 31
    if is_number and isinstance(authorities, str):
        record.trust = replace(record.trust, has=certificate, authorities=authorities[:64])
    return True


def _hardware(record: Record, text: str, data: Data) -> bool:
    record.cards = cards(data.get("cards"))
    return True


def _network(record: Record, text: str, data: Data) -> bool:
    record.interfaces = interfaces(data.get("interfaces"))
    return True


def _clock(record: Record, text: str, data: Data) -> bool:
    record.clock = clock(data)
    return True


def _no_time(record: Record, text: str, data: Data) -> bool:
    record.clock = None
    return True


def _agent(record: Record, text: str, data: Data) -> bool:
    record.boots = replace(
        record.boots, runs=set_name(data.get("boot")), agent_runs=set_name(data.get("agent"))
    )
    return True


def _agent_swap_failed(record: Record, text: str, data: Data) -> bool:
    if data.get("ask") != record.boots.ask:
        return False
    record.boots = replace(record.boots, agent_error=text[:500])
    return True


_REPORTS: Mapping[str, Callable[[Record, str, Data], bool]] = {
    images.STAGED.name: _staged,
    images.STAGE_FAILED.name: _stage_failed,
    images.UNHEALTHY.name: _unhealthy,
    images.DEGRADED.name: _unhealthy,
    images.HEALTHY.name: _healthy,
    images.CONTAINERS.name: _containers,
    NODE_API.name: _node_api,
    HARDWARE.name: _hardware,
    NETWORK.name: _network,
    CLOCK.name: _clock,
    NO_TIME.name: _no_time,
    AGENT.name: _agent,
    AGENT_SWAP_FAILED.name: _agent_swap_failed,
}
"""What is kept of an event, by its kind; each says whether anything was."""


def set_name(value: object) -> str:
    """The name of a boot set as a node says it, "" if it is none."""
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""
