"""LLDP neighbours (IEEE 802.1AB): which switch and port the head is at, as the switch says."""

from __future__ import annotations

from layercake.base.packets.lldp import Neighbour, parse
from layercake.check.finding import Finding, check, ok, warning
from layercake.check.site import Site
from layercake.check.wire.listening import LLDP, ReceivedFrame, exchange

_HEADER = 18
"""Bytes of an Ethernet header and checksum."""


def neighbours(heard: list[ReceivedFrame]) -> list[tuple[str, Neighbour]]:
    """(interface, the neighbour that announced itself there), each once."""
    parsed = [(one.interface, parse(one.frame)) for one in heard]
    return list(dict.fromkeys((interface, who) for interface, who in parsed if who is not None))


@check("lldp", sides=True)
def lldp(site: Site) -> list[Finding]:
    """Which switch and port the nodes' interface is at, by LLDP; whether that port takes frames of
    the interface's MTU. Switches announce themselves every 30 s: --listen 31 waits for them."""
    name = site.settings.interface
    links = site.machine.ip(
        "link", "show", "master", name
    )  # a bridge passes LLDP on to its ports, not to itself
    interfaces = [name, *(str(link["ifname"]) for link in links)]
    mtu = next((int(link["mtu"]) for link in site.machine.ip("link", "show", "dev", name)), 0)
    announced = neighbours(exchange(interfaces, LLDP, site.listen_s))
    findings = [
        ok(f"{interface} is at {n.switch}, port {n.port}" + (f", VLAN {n.vlan}" if n.vlan else ""))
        for interface, n in announced
    ]
    findings += [
        warning(
            f"{n.switch} takes frames of {n.frame} bytes on port {n.port}, and {name} sends up to "
            f"{mtu + _HEADER}",
            "give the interface a smaller MTU, or the port a bigger one",
        )
        for _, n in announced
        if 0 < n.frame < mtu + _HEADER
    ]
    return findings or [ok(f"no switch announced itself in {site.listen_s:g} s")]
