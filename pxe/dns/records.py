"""Which records a node has, and which the head has for each domain. Pure."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from urllib.parse import urlsplit

from pxe.dns.zone import Entry, reverse, top_of_six, tops_of
from pxe.dns_settings import HEAD
from pxe.nodes import Node
from pxe.packets.dns import Type, wire
from pxe.settings import Settings

BMC = "-bmc"
"""What a node's name has behind it for its BMC: n0-bmc."""
NAME = 0
ALIAS = 1
CONTROLLER = 2
"""The ranks: who has a name that several claim."""
_SRV = struct.Struct("!HHH")
_NTP_PORT = 123
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def domain_of(node: Node, settings: Settings) -> str:
    """The domain of a node's network."""
    return (
        node.subnet.domain
        if node.subnet is not None and node.subnet.domain
        else settings.names.domain
    )


def full(name: str, domain: str) -> str:
    """A name in its domain; one with dots is whole as it is, as a node's own /etc/hosts has it."""
    return name if "." in name else f"{name}.{domain}"


def six_of(node: Node, settings: Settings) -> ipaddress.IPv6Address | None:
    """The address that a running node makes of the prefix that the head advertises on its own
    network (SLAAC, RFC 4291)."""
    on_own_network = node.subnet is None or node.subnet.network == settings.network
    if settings.ra_prefix is None or not on_own_network or ":" in node.ip or not node.macs:
        return None
    mac = node.macs[0]
    return ipaddress.IPv6Network(settings.ra_prefix)[
        int.from_bytes(bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:], "big")
    ]


def of_node(node: Node, settings: Settings) -> tuple[Entry, ...]:
    """A node's records; a name that is too long for DNS has none."""
    domain = domain_of(node, settings)
    six = six_of(node, settings)
    own: list[_Address] = [ipaddress.ip_address(node.ip), *([six] if six is not None else [])]
    entries = [*_addresses(node.name, full(node.name, domain), own, NAME, node.name)]
    if node.bmc:
        first, dot, rest = node.name.partition(".")
        name = f"{first}{BMC}{dot}{rest}"
        entries += _addresses(
            name, full(name, domain), [ipaddress.ip_address(node.bmc)], CONTROLLER, node.name
        )
    target = _wire(full(node.name, domain))
    for alias in node.aliases if target else ():
        names = {alias, full(alias, domain)}
        entries += [
            Entry(name, Type.CNAME, target, ALIAS, node.name)
            for name in filter(None, map(_wire, sorted(names)))
        ]
    return tuple(entries)


def tops_of_node(node: Node, settings: Settings) -> tuple[bytes, ...]:
    """The zones that a node makes ours: its domain."""
    name = _wire(domain_of(node, settings))
    return (name,) if name else ()


def _addresses(
    short: str, name: str, addresses: list[_Address], rank: int, node: str
) -> Iterator[Entry]:
    """The addresses of a name, in its domain and alone, and the name of each address."""
    whole = _wire(name)
    for address in addresses:
        kind = _kind(address)
        for each in filter(None, {whole: None, _wire(short): None}):
            yield Entry(each, kind, address.packed, rank, node)
        if whole:
            yield Entry(reverse(address), Type.PTR, whole, rank, node)


def _kind(address: _Address) -> Type:
    return Type.A if address.version == 4 else Type.AAAA


def _wire(name: str) -> bytes:
    try:
        return wire(name)
    except ValueError:  # longer than DNS has names
        return b""


def of_head(domain: str, ntp: tuple[str, ...], settings: Settings) -> tuple[Entry, ...]:
    """What the head itself has in a domain: its name, the API, files for booting, and time servers
    if its networks have any."""
    head = wire(f"{HEAD}.{domain}")
    url = urlsplit(settings.head_url)
    addresses = [ipaddress.ip_address(own.address) for own in settings.heads]
    entries = [Entry(head, _kind(address), address.packed, -1) for address in addresses]
    entries += [
        _service("_layercake._tcp", domain, url.port or 443, head),
        _service("_tftp._udp", domain, settings.tftp_port, head),
    ]
    if domain == settings.names.domain:
        for address in addresses:
            entries += [
                Entry(wire(HEAD), _kind(address), address.packed, -1),
                Entry(reverse(address), Type.PTR, head, -1),
            ]
    if ntp:
        time = wire(f"ntp.{domain}")
        servers = map(ipaddress.ip_address, ntp)
        entries += [Entry(time, _kind(server), server.packed, ALIAS) for server in servers]
        entries.append(_service("_ntp._udp", domain, _NTP_PORT, time))
    return tuple(entries)


def _service(label: str, domain: str, port: int, target: bytes) -> Entry:
    """Where a service is: RFC 2782."""
    return Entry(wire(f"{label}.{domain}"), Type.SRV, _SRV.pack(0, 0, port) + target, -1)


def tops_of_head(domain: str, settings: Settings) -> tuple[bytes, ...]:
    """The zones of a domain of ours; with the usual domain also those of the head's own network."""
    tops = [wire(domain)]
    if domain == settings.names.domain:
        tops += [top for own in settings.heads for top in tops_of(own.network)]
        if settings.ra_prefix is not None:
            tops.append(top_of_six(ipaddress.IPv6Network(settings.ra_prefix)))
    return tuple(tops)
