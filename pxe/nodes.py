"""The nodes that may get an address: by id, by MAC, by IP. One node's change costs one node,
whatever the size of the rack."""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from layercake.kraken.errors import InputError
from layercake.moduleapi.network import AnyNetwork
from pxe.packets.dhcp6 import ip_of, mac_of_address
from pxe.settings import Settings
from pxe.subnet import Subnet, of, refusal

if TYPE_CHECKING:
    from pxe.dhcp.answers import Kept

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_BOOT_SET = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class Firmware(enum.Enum):
    """What the inventory says a node boots with."""

    BIOS = "bios"
    UEFI = "uefi"


@dataclass(frozen=True, slots=True)
class Node:
    """What the boot service knows of a node. `macs` are six bytes each; `packed_ip` are the four
    bytes of `ip`, or the sixteen of a node that has no IPv4.

    `kernel_args` and `console` are not checked here but where they meet a script
    (pxe.paths.boot_spec), so that a bad one costs the node its boot and not its address. `boot_set`
    is what it boots. `secure_boot`: its firmware runs signed programs only. `card_ipxe`: the iPXE
    that its card has is used. `subnet` is the network that it belongs to, None for that of the
    head. `aliases` are other names of it, `bmc` the IP address of its BMC, "" if it has none.
    `answers` are those that DHCP keeps for it (pxe.dhcp.answers). `stranger`: it is in no
    inventory, and is being discovered (pxe.dynamic.discovery). `other_heads` are the site's other
    heads, for its command line.
    """

    id: str
    name: str
    macs: tuple[bytes, ...]
    ip: str
    packed_ip: bytes
    arch: str
    firmware: Firmware
    kernel_args: str
    console: str
    boot_set: str = ""
    secure_boot: bool = False
    subnet: Subnet | None = None
    aliases: tuple[str, ...] = ()
    bmc: str = ""
    card_ipxe: bool = True
    stranger: bool = False
    other_heads: tuple[str, ...] = ()
    answers: dict[bytes, Kept] = field(default_factory=dict, init=False, repr=False, compare=False)


def boot_set(name: str) -> str:
    """The name of a boot set, which is a directory below boot/; "" is boot/ itself. Raises
    InputError."""
    if name and not _BOOT_SET.fullmatch(name):
        raise InputError(f"cannot use boot set {name[:64]!r}: that is no name of one")
    return name


def mac_text(mac: bytes) -> str:
    """52:54:00:00:00:01, for people and for the kernel command line."""
    return mac.hex(":")


def mac_bytes(text: str) -> bytes:
    """Six bytes from 52:54:00:00:00:01 or 52-54-00-00-00-01, in either case. Raises InputError."""
    plain = text.lower().replace("-", ":")
    if not _MAC.fullmatch(plain):
        raise InputError(
            f"cannot use MAC address {text!r}: six pairs of hex digits are expected, such as "
            "52:54:00:00:00:01"
        )
    return bytes.fromhex(plain.replace(":", ""))


def from_record(node: str, record: Mapping[str, Any], settings: Settings | None = None) -> Node:
    """Checks one record from the head. Raises InputError, also for a node with an address that is
    neither in a network of its own nor in that of the head with these settings. A head on loopback
    has none."""
    name = record.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"cannot serve node {node}: {name!r} is not a host name")
    macs = _macs(name, record)
    try:
        ip = ipaddress.ip_address(str(record.get("ip")))
    except ValueError:
        raise InputError(
            f"cannot serve node {name}: {record.get('ip')!r} is not an IP address"
        ) from None
    subnet = None
    if settings is not None:
        subnet = of(record["network"], settings) if record.get("network") else None
        _check_address(name, ip, subnet, settings)
    try:
        firmware = Firmware(record.get("firmware", "bios"))
    except ValueError:
        raise InputError(
            f"cannot serve node {name}: firmware {record.get('firmware')!r} is not bios or uefi"
        ) from None
    aliases, bmc = _names(name, record)
    return Node(
        node,
        name,
        macs,
        str(ip),
        ip.packed,
        _text(record, "arch") or "x86_64",
        firmware,
        _text(record, "kernel_args"),
        _text(record, "console"),
        boot_set(_text(record, "boot_set")),
        record.get("secure_boot") is True,
        subnet,
        aliases,
        bmc,
        record.get("card_ipxe") is not False,
        other_heads=tuple(map(str, record.get("other_heads", ()))),
    )


def _text(record: Mapping[str, Any], key: str) -> str:
    return str(record.get(key) or "")


def _macs(name: str, record: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The MAC addresses of a node. Raises InputError."""
    listed = record.get("macs")
    if not isinstance(listed, list | tuple):
        raise InputError(f"cannot serve node {name}: its record has no MAC addresses")
    macs = tuple(mac_bytes(str(mac)) for mac in listed)
    if any(mac[0] & 1 for mac in macs):
        raise InputError(
            f"cannot serve node {name}: one of its MAC addresses is a multicast address, no "
            "interface has that"
        )
    return macs


def _check_address(
    name: str,
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
    subnet: Subnet | None,
    settings: Settings,
) -> None:
    """Raises InputError for an address that is not in the node's network."""
    if subnet is None and settings.network.is_loopback:
        return
    why = refusal(ip, settings.network if subnet is None else subnet.network)
    if why:
        raise InputError(
            f"cannot serve node {name}: {why}",
            hint="declare the node's network under `networks` in the inventory, or correct its "
            "address",
        )


def _names(name: str, record: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The aliases of a node and the address of its BMC. Raises InputError."""
    aliases = record.get("aliases") or ()
    bmc = record.get("bmc") or ""
    if not isinstance(aliases, list | tuple) or not all(
        isinstance(alias, str) and _NAME.fullmatch(alias) for alias in aliases
    ):
        raise InputError(f"cannot serve node {name}: its aliases are not names")
    try:
        return tuple(aliases), str(ipaddress.ip_address(bmc)) if bmc else ""
    except ValueError:
        raise InputError(f"cannot serve node {name}: {bmc!r} is not the address of a BMC") from None


class Nodes:
    """The table. The inventory forbids two nodes with one MAC or IP; when records of a swap arrive
    one after the other, the newest owner of a MAC or IP has it, and the old owner's later change
    does not take it away. `networks` is another number whenever the networks that nodes are in are
    others. `told` is clear while a new process is being told of its nodes: who is not known may
    be one of them then, gets no answer, and asks again."""

    def __init__(self, *, told: bool = True) -> None:
        self.told = asyncio.Event()
        if told:
            self.told.set()
        self.networks = 0
        self._by_id: dict[str, Node] = {}
        self._by_mac: dict[bytes, Node] = {}
        self._by_ip: dict[str, Node] = {}
        self._run: dict[str, str] = {}
        self._subnets: Counter[Subnet] = Counter()

    def __len__(self) -> int:
        return len(self._by_id)

    def update(self, node: Node) -> None:
        """Adds a node or replaces it."""
        self._forget_addresses(node.id)
        self._by_id[node.id] = node
        self._by_ip[node.ip] = node
        if node.subnet is not None:
            self.networks += node.subnet not in self._subnets
            self._subnets[node.subnet] += 1
        for mac in node.macs:
            self._by_mac[mac] = node

    def remove(self, node: str) -> None:
        """Takes a node out; one that is not there is fine."""
        self._forget_addresses(node)
        self._by_id.pop(node, None)
        self._run.pop(node, None)

    def _forget_addresses(self, node: str) -> None:
        old = self._by_id.get(node)
        if old is None:
            return
        if old.subnet is not None:
            self._subnets[old.subnet] -= 1
            if not self._subnets[old.subnet]:
                del self._subnets[old.subnet]
                self.networks += 1
        if (owner := self._by_ip.get(old.ip)) is not None and owner.id == node:
            del self._by_ip[old.ip]
        for mac in old.macs:
            if (owner := self._by_mac.get(mac)) is not None and owner.id == node:
                del self._by_mac[mac]

    def all(self) -> list[Node]:
        """Every node."""
        return list(self._by_id.values())

    def by_id(self, node: str) -> Node | None:
        """The node with this id."""
        return self._by_id.get(node)

    def by_mac(self, mac: bytes) -> Node | None:
        """The node that owns these six bytes."""
        return self._by_mac.get(mac)

    def by_ip(self, ip: str) -> Node | None:
        """The node that this address is reserved for. Of IPv6, the link-local ones that are made of
        a MAC address, and those that are made of an IPv4 address (pxe.packets.dhcp6)."""
        if (node := self._by_ip.get(ip)) is not None or ":" not in ip:
            return node
        address = ipaddress.IPv6Address(ip.partition("%")[0]).packed
        mac = mac_of_address(address)
        return self._by_mac.get(mac) if mac is not None else self._by_ip.get(ip_of(address) or "")

    def may_come(self, node: Node | None) -> bool:
        """Whether who is found to be this node, or none, may be one that was not told yet."""
        return node is None and not self.told.is_set()

    def subnet_of(self, link: bytes) -> Subnet | None:
        """The network of a link, by the address of a relay there; of the networks that nodes are
        in, but that of the head."""
        return next((subnet for subnet in self._subnets if subnet.serves_relay(link)), None)

    def near(
        self, own: Sequence[AnyNetwork]
    ) -> Callable[[ipaddress.IPv4Address | ipaddress.IPv6Address], bool]:
        """Whether an address is in the head's networks or in another that nodes are in, as it is
        when it is asked."""
        return lambda address: (
            any(address in network for network in own)
            or any(address in subnet.network for subnet in self._subnets)
        )

    def set_run(self, node: str, run: str) -> None:
        """Keeps the discovered value of the variable `run`: it tells a node in firmware from one
        that should be running."""
        self._run[node] = run

    def run(self, node: str) -> str:
        """The discovered value of `run`, UNKNOWN if nothing was said."""
        return self._run.get(node, "UNKNOWN")
