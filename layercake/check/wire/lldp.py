"""LLDP neighbours (IEEE 802.1AB): which switch and port the head is at, as the switch says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.text import show
from layercake.check.finding import Finding, check, ok, warning
from layercake.check.site import Site
from layercake.check.wire.listening import LLDP, Heard, exchange

_HEADER = 18
"""Bytes of an Ethernet header and checksum."""
_VLAN, _FRAME = (0x0080C2, 1), (0x00120F, 4)
"""Port VLAN id (802.1Q, annex D) and maximum frame size (802.3, 79.3.4): organisationally specific TLVs by OUI and subtype."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who is at the other end of a cable. `frame` is the longest frame that it takes, in bytes; 0 if it does not say."""

    interface: str
    name: str
    port: str
    vlan: int = 0
    frame: int = 0


def neighbours(heard: list[Heard]) -> list[Neighbour]:
    """The neighbours that announced themselves, each once."""
    from scapy.config import conf  # here: scapy is slow to import
    from scapy.contrib import lldp
    from scapy.layers.l2 import Ether

    conf.contribs["LLDP"].strict_mode_disable()
    found: dict[Neighbour, None] = {}
    for one in heard:
        packet = Ether(one.frame)
        if lldp.LLDPDUChassisID not in packet or lldp.LLDPDUPortID not in packet:
            continue
        if lldp.LLDPDUTimeToLive in packet and packet[lldp.LLDPDUTimeToLive].ttl == 0:
            continue  # it says good-bye
        name = packet[lldp.LLDPDUSystemName].system_name if lldp.LLDPDUSystemName in packet else packet[lldp.LLDPDUChassisID].id
        own: dict[tuple[int, int], bytes] = {}
        layer: Any = packet
        while layer:
            if isinstance(layer, lldp.LLDPDUGenericOrganisationSpecific):
                own[(int(layer.org_code), int(layer.subtype))] = bytes(layer.data)
            layer = layer.payload
        port = _text(packet[lldp.LLDPDUPortID].id)
        found[Neighbour(one.interface, _text(name), port, _number(own, _VLAN), _number(own, _FRAME))] = None
    return list(found)


def _number(own: Mapping[tuple[int, int], bytes], what: tuple[int, int]) -> int:
    return int.from_bytes(own[what][:2], "big") if what in own else 0


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return show(text, 40)[1:-1]


@check("lldp", sides=True)
def lldp(site: Site) -> list[Finding]:
    """Which switch and port the nodes' interface is at, by LLDP; whether that port takes frames of the interface's MTU. Switches
    announce themselves every 30 s: --listen 31 waits for them."""
    name = site.settings.interface
    links = site.machine.ip("link", "show", "master", name)  # a bridge passes LLDP on to its ports, not to itself
    interfaces = [name, *(str(link["ifname"]) for link in links)]
    mtu = next((int(link["mtu"]) for link in site.machine.ip("link", "show", "dev", name)), 0)
    found = neighbours(exchange(interfaces, LLDP, site.listen_s))
    said = [ok(f"{n.interface} is at {n.name}, port {n.port}" + (f", VLAN {n.vlan}" if n.vlan else "")) for n in found]
    said += [warning(f"{n.name} takes frames of {n.frame} bytes on port {n.port}, and {name} sends up to {mtu + _HEADER}",
                     "give the interface a smaller MTU, or the port a bigger one") for n in found if 0 < n.frame < mtu + _HEADER]
    return said or [ok(f"no switch announced itself in {site.listen_s:g} s")]
