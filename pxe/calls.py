"""What the boot service can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from layercake.moduleapi.module import Call, NodeRequest, NoRequest, Role, call
from layercake.moduleapi.strangers import DISCOVERED, HEARD
from pxe.dhcp.relay import RelaySighting
from pxe.dns.names import NamesShown
from pxe.dynamic.networks import GuestCount, GuestLeases
from pxe.dynamic.switch_ports import PortSighting
from pxe.nodes import mac_bytes
from pxe.state import Fetchable

if TYPE_CHECKING:
    from pxe.service import PxeService


@call("boot.steps", role=Role.VIEWER, answer=dict[str, Any])
async def steps(service: PxeService, request: NodeRequest) -> dict[str, Any]:
    """How far a node's present boot has come."""
    return service.steps(request.node)


@call("boot.stats", role=Role.VIEWER, request=NoRequest, answer=dict[str, int])
async def stats(service: PxeService, request: NoRequest) -> dict[str, int]:
    """Counters of packets and transfers, and the number of nodes."""
    return service.stats()


@call("boot.relays", role=Role.VIEWER, request=NoRequest, answer=dict[str, RelaySighting])
async def relays(service: PxeService, request: NoRequest) -> dict[str, RelaySighting]:
    """The DHCP relays that were heard last, by the networks of the inventory that they speak
    for."""
    return service.relays()


@call("boot.guests", role=Role.VIEWER, request=NoRequest, answer=dict[str, GuestCount])
async def guests(service: PxeService, request: NoRequest) -> dict[str, GuestCount]:
    """How many addresses machines have that are not in the inventory, by network."""
    return service.dynamic.counts()


class LeasesRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a page begins."""

    start: Annotated[int, Meta(ge=0)] = 0


@call("boot.leases", role=Role.OPERATOR, request=LeasesRequest, answer=GuestLeases)
async def leases(service: PxeService, request: LeasesRequest) -> GuestLeases:
    """The addresses of machines that are not in the inventory: whose they are, and for how long."""
    return service.dynamic.leases(request.start)


class DiscoveredRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The MAC address of a machine that has reported."""

    mac: Annotated[str, Meta(max_length=17)]


@call(DISCOVERED, role=Role.ADMIN, request=DiscoveredRequest, answer=bool)
async def discovered(service: PxeService, request: DiscoveredRequest) -> bool:
    """An unknown machine has reported what it is, and gives up its place among those that boot."""
    return service.dynamic.discovery.reported(mac_bytes(request.mac))


class SightingsRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The MAC addresses of cards."""

    macs: Annotated[list[Annotated[str, Meta(max_length=17)]], Meta(max_length=64)]


@call(HEARD, role=Role.OPERATOR, request=SightingsRequest, answer=dict[str, PortSighting])
async def sightings(service: PxeService, request: SightingsRequest) -> dict[str, PortSighting]:
    """Where cards were heard last by DHCP: the port that option 82 named, and how long ago."""
    return service.switch_ports.sightings(map(mac_bytes, request.macs))


class NamesRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which name or address; all of them without. `records`: false for how it is served alone.
    `start` is where a page begins."""

    name: Annotated[str, Meta(max_length=253)] = ""
    records: bool = True
    start: Annotated[int, Meta(ge=0)] = 0


@call("boot.names", role=Role.OPERATOR, request=NamesRequest, answer=NamesShown)
async def names(service: PxeService, request: NamesRequest) -> NamesShown:
    """The names that the head's DNS has, or what one of them, or an address, leads to."""
    return service.names(request.name, request.records, request.start)


class VisitRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """For how many seconds the head itself may fetch."""

    seconds: Annotated[float, Meta(gt=0, le=60)] = 30.0


@call("boot.visit", role=Role.OPERATOR, request=VisitRequest, answer=Fetchable)
async def visit(service: PxeService, request: VisitRequest) -> Fetchable:
    """Let the head itself fetch boot files for a short time, as `layercake check` does, and say
    which there are."""
    return service.visit(request.seconds)


CALLS: tuple[Call, ...] = (
    steps,
    stats,
    relays,
    guests,
    leases,
    discovered,
    sightings,
    names,
    visit,
)
