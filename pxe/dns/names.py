"""The names of the site as they are now, who may ask for them, and how people are shown them."""

from __future__ import annotations

import ipaddress
import itertools
import socket
import struct
from collections import Counter
from collections.abc import Callable

import msgspec

from layercake.base.text import show
from layercake.kraken.errors import InputError
from pxe.dns import records
from pxe.dns.zone import Entry, Zone, reverse, tops_of
from pxe.dns_settings import HEAD
from pxe.nodes import Node
from pxe.packets.dns import Type, shown, wire
from pxe.settings import Settings

_SRV = struct.Struct("!HHH")
PAGE = 2000
"""Records in one answer to the head: a message between its processes has 4 MB at most, and DHCP
waits meanwhile."""
_ASKED = 10_000
"""Addresses of which it is kept whether they may ask."""


class NameShown(msgspec.Struct, frozen=True):
    """One record. `node` is whose it is, "" for the head's own; `bmc`: it is about the node's
    BMC."""

    name: str
    type: str
    data: str
    node: str
    bmc: bool


class NamesShown(msgspec.Struct, frozen=True):
    """The zone, or what a name in it leads to. `serves`: whether there is any; `ours`: whether the
    name is in a zone of ours, else it is asked of the servers in `forward`. `more`: where the next
    page begins, 0 if this is the last."""

    serves: bool = False
    address: str = ""
    domains: list[str] = []
    forward: list[str] = []
    ours: bool = True
    records: list[NameShown] = []
    more: int = 0


class Names:
    """Follows the nodes: one node's change costs one node. `stamp` begins the serial numbers.
    `asked` has of those who have asked lately whether they may, as nodes' networks may, and those
    for which `guests` holds. `told` says whether all nodes are known."""

    def __init__(
        self,
        settings: Settings,
        stamp: int,
        guests: Callable[[ipaddress.IPv4Address | ipaddress.IPv6Address], bool] = lambda address: (
            False
        ),
        told: Callable[[], bool] = lambda: True,
    ) -> None:
        self.told = told
        self._settings = settings
        self._guests = guests
        self.zone = Zone(HEAD, settings.names.domain, stamp, settings.names.ttl_s)
        self._of: dict[str, Node] = {}
        self._times: dict[str, Counter[tuple[str, ...]]] = {}
        self._networks = Counter(own.network for own in settings.heads)
        self._allowed = tuple(map(ipaddress.IPv4Network, settings.names.allow))
        self.asked: dict[str, bool] = {}
        self._head(settings.names.domain)

    def update_node(self, node: Node) -> None:
        """A node is new, or another than before."""
        before = self._of.get(node.id)
        self._of[node.id] = node
        self._belongs(node, 1)
        self.zone.set_records(
            node.id,
            records.of_node(node, self._settings),
            records.tops_of_node(node, self._settings),
        )
        if before is not None:
            self._belongs(before, -1)

    def remove(self, node: str) -> None:
        """A node is gone; one that is not there is fine."""
        before = self._of.pop(node, None)
        if before is not None:
            self.zone.remove(node)
            self._belongs(before, -1)

    def _belongs(self, node: Node, count: int) -> None:
        """Counts the nodes of a network and a domain: both are ours as long as there are any."""
        domain = records.domain_of(node, self._settings)
        times = self._times.setdefault(domain, Counter())
        ntp = node.subnet.ntp if node.subnet is not None else ()
        had = set(times)
        times[ntp] += count
        if not times[ntp]:
            del times[ntp]
        if set(times) != had:
            self._head(domain)
        if node.subnet is None:
            return
        network = node.subnet.network
        self._networks[network] += count
        if self._networks[network] == max(count, 0):  # the first, or the last
            self.asked.clear()
            if count > 0:
                self.zone.set_records(f"network {network}", (), tops_of(network))
            else:
                del self._networks[network]
                self.zone.remove(f"network {network}")

    def _head(self, domain: str) -> None:
        """What the head has in a domain, as long as it is one."""
        times = self._times.get(domain, Counter())
        if not times and domain != self._settings.names.domain:
            self._times.pop(domain, None)
            self.zone.remove(f"head {domain}")
            return
        ntp = tuple(sorted({server for servers in times for server in servers}))
        self.zone.set_records(
            f"head {domain}",
            records.of_head(domain, ntp, self._settings),
            records.tops_of_head(domain, self._settings),
        )

    def client(self, address: str) -> bool:
        """Whether somebody at this address may ask."""
        known = self.asked.get(address)
        if known is None:
            parsed = ipaddress.ip_address(address)
            known = any(
                parsed in network for network in (*self._networks, *self._allowed)
            ) or self._guests(parsed)
            if len(self.asked) >= _ASKED:
                self.asked.clear()
            self.asked[address] = known
        return known

    def frame(self, forward: tuple[str, ...]) -> NamesShown:
        """How it is served, without records. `forward` are the servers that are asked for other
        names."""
        return NamesShown(
            True,
            self._settings.address,
            sorted(self._times.keys() | {self._settings.names.domain}),
            list(forward),
        )

    def view(self, name: str, forward: tuple[str, ...], start: int = 0) -> NamesShown:
        """A page of all records, or those that a name or an address leads to. Raises InputError."""
        frame = self.frame(forward)
        if not name:
            entries = list(itertools.islice(self.zone.entries(), start, start + PAGE + 1))
            more = start + PAGE if len(entries) > PAGE else 0
            return msgspec.structs.replace(
                frame, records=list(map(_shown, entries[:PAGE])), more=more
            )
        asked = _asked(name)
        tried = (
            [asked]
            if "." in name.rstrip(".")
            else [asked, *(wire(f"{name}.{domain}") for domain in frame.domains)]
        )
        ours = any(self.zone.apex(each) is not None for each in tried)
        return msgspec.structs.replace(
            frame, ours=ours, records=next(filter(None, map(self._chased, tried)), [])
        )

    def _chased(self, name: bytes) -> list[NameShown]:
        """The records of a name, and those of the name that an alias stands for."""
        held = self.zone.at(name)
        more = [
            entry
            for alias in held
            if alias.type == Type.CNAME
            for entry in self.zone.at(alias.data)
        ]
        return list(map(_shown, (*held, *more)))


def _asked(name: str) -> bytes:
    """A name, or that of an address. Raises InputError."""
    try:
        return reverse(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return wire(name)
    except (ValueError, UnicodeEncodeError):
        raise InputError(
            f"cannot look up {show(name)}: it is not a name", hint="a host's name, or an IP address"
        ) from None


def _shown(entry: Entry) -> NameShown:
    name, kind, data, rank, node = entry
    match kind:
        case Type.A:
            text = socket.inet_ntop(socket.AF_INET, data)
        case Type.AAAA:
            text = socket.inet_ntop(socket.AF_INET6, data)
        case Type.SRV:
            text = " ".join(map(str, _SRV.unpack_from(data))) + f" {shown(data[_SRV.size :])}"
        case _:
            text = shown(data)
    return NameShown(shown(name), Type(kind).name, text, node, rank == records.CONTROLLER)
