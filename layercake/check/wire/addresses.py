"""Addresses that two machines have, asked for by ARP (RFC 826, RFC 5227)."""

from __future__ import annotations

from collections.abc import Iterable

from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import CheckedNode, Site
from layercake.check.wire.listening import ARP, ReceivedFrame, exchange, hardware_address

_BROADCAST = "ff:ff:ff:ff:ff:ff"
_NOBODY = "0.0.0.0"
_REPLY = 2
_MOST_S = 3.0


def questions(own_mac: str, own: str, addresses: Iterable[str]) -> list[bytes]:
    """Frames that ask who has the head's own address (as one who has none, so that nobody learns
    anything), and who has others."""
    from scapy.layers.l2 import ARP as Arp  # here: scapy is slow to import
    from scapy.layers.l2 import Ether

    ether = Ether(src=own_mac, dst=_BROADCAST)
    return [
        bytes(ether / Arp(op=1, hwsrc=own_mac, psrc=_NOBODY if wanted == own else own, pdst=wanted))
        for wanted in (own, *addresses)
    ]


def owners(heard: list[ReceivedFrame]) -> dict[str, set[str]]:
    """{IPv4 address: MAC addresses that answer for it}."""
    from scapy.layers.l2 import ARP as Arp
    from scapy.layers.l2 import Ether

    owners: dict[str, set[str]] = {}
    for one in heard:
        packet = Ether(one.frame)
        if Arp in packet and packet[Arp].op == _REPLY:
            owners.setdefault(str(packet[Arp].psrc), set()).add(str(packet[Arp].hwsrc).lower())
    return owners


def judge(own: str, nodes: Iterable[CheckedNode], found: dict[str, set[str]]) -> list[Finding]:
    """What is wrong with who answers."""
    findings = [
        error(
            f"another machine has the head's address {own}: {', '.join(sorted(macs))}",
            "give one of the two another address",
        )
        for address, macs in found.items()
        if address == own
    ]
    awake = []
    for node in nodes:
        macs = found.get(node.ip, set())
        if others := sorted(macs - set(node.macs)):
            findings.append(
                error(
                    f"{node.ip} of {node.name} is used by {', '.join(others)}, which is no MAC "
                    "address of the node",
                    "correct the inventory (mac), or give the other machine another address",
                    [node.name],
                )
            )
        elif macs and node.power == "OFF":
            awake.append(node.name)
    if awake:
        findings.append(
            warning(
                "answer, and their BMCs say that they are off",
                "is each bmc.address that of the same machine?",
                awake,
            )
        )
    return findings


@check("addresses", sides=True)
def addresses(site: Site) -> list[Finding]:
    """Two machines with one address: ARP requests for the head's own address and those of all
    nodes. Nodes that answer while their BMCs say that they are off."""
    settings = site.settings
    if ":" in settings.address:
        return [
            ok(
                f"{settings.address}: with IPv6, machines look by themselves for others with their "
                "address (RFC 4862)"
            )
        ]
    asked = questions(
        hardware_address(settings.interface),
        settings.address,
        (node.ip for node in site.nodes if "." in node.ip),
    )
    owned = owners(
        exchange([settings.interface], ARP, min(site.listen_s, _MOST_S), say=asked, again_s=1.0)
    )
    answered = sum(node.ip in owned for node in site.nodes)
    return judge(settings.address, site.nodes, owned) or [
        ok(
            f"nobody else has {settings.address}; of {len(site.nodes)} nodes' addresses {answered} "
            "are answered for, each by its node"
        )
    ]
