"""The settings of the boot service: its section of config.yaml, and that together with the head's
own addresses."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from layercake.base.datagrams import free_bind
from layercake.base.packets.ntp import PORT
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import NEWER, Check, Mistake, text
from layercake.moduleapi.module import Site
from layercake.moduleapi.network import AnyNetwork, HeadAddress, bracketed, facing
from pxe.dns_settings import DnsSettings

_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_MOST_SERVERS = 16
DhcpMode = Literal["serve", "proxy", "off"]
"""What the head does by DHCP: gives addresses and what to boot; what to boot alone, beside a server
of the site; nothing."""


def ra_prefix(value: object) -> str | None:
    """A prefix that nodes can make addresses of."""
    if value is None:
        return None
    try:
        network = ipaddress.IPv6Network(text(value))
    except ValueError:
        raise Mistake(f"{value!r} is not an IPv6 network", "such as fd99::/64") from None
    if network.prefixlen != 64:
        raise Mistake(f"{value} is not a /64", "only a /64 gives nodes addresses (RFC 4862)")
    return str(network)


def dhcp_servers(value: object) -> tuple[str, ...]:
    """The addresses of DHCP servers."""
    if not isinstance(value, list | tuple):
        raise Mistake("expected a list of addresses", "such as [10.99.0.2]")
    if len(value) > _MOST_SERVERS:
        raise Mistake(f"{len(value)} servers, at most {_MOST_SERVERS} can be named")
    try:
        return tuple(str(ipaddress.IPv4Address(text(server))) for server in value)
    except ValueError:
        raise Mistake("that is not a list of IPv4 addresses", "such as [10.99.0.2]") from None


class BootSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Network boot."""

    http_port: Annotated[
        int, Meta(ge=1, le=65535, description="TCP port of the web server for boot files.")
    ] = 8080
    tftp_port: Annotated[int, Meta(ge=1, le=65535, description="UDP port of TFTP.")] = 69
    dhcp_port: Annotated[
        int, Meta(ge=1, le=65534, description="UDP port of DHCP; clients have the next one.")
    ] = 67
    dhcp: Annotated[
        DhcpMode,
        Meta(
            extra=NEWER,
            description="`serve`: the head gives nodes their addresses and what to boot. `proxy`: "
            "a DHCP server of the "
            "site gives addresses, the head what to boot (proxyDHCP). `off`: the site has both, "
            "the head the files.",
        ),
    ] = "serve"
    dhcp_servers: Annotated[
        tuple[str, ...],
        Check(dhcp_servers),
        Meta(
            extra=NEWER,
            description="The site's own DHCP servers. Others that answer nodes are told of; in "
            "`proxy`, where none is "
            "named, none is.",
        ),
    ] = ()
    ntp_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            extra=NEWER,
            description="UDP port of SNTP, by which nodes of networks without `ntp` keep their "
            "clocks, or "
            "0: they do not.",
        ),
    ] = 123
    lease_s: Annotated[
        int, Meta(ge=60, le=0x7FFFFFFF, description="Seconds that an address is leased for.")
    ] = 3600
    attempts: Annotated[
        int, Meta(ge=1, le=100, description="Boots that are tried before a node is quarantined.")
    ] = 3
    join_s: Annotated[
        float,
        Meta(
            ge=10,
            le=28800,
            extra=NEWER,
            description="Seconds from power-on until a node's agent joins, before the boot counts "
            "as "
            "failed, where the inventory has no boot_timeout.",
        ),
    ] = 1200.0
    step_s: Annotated[
        float,
        Meta(
            ge=10,
            le=28800,
            extra=NEWER,
            description="Seconds for each further step of a boot, once the firmware was seen.",
        ),
    ] = 300.0
    ipxe_dir: Annotated[
        str, Meta(min_length=1, description="Where undionly.kpxe and snponly.efi are.")
    ] = "/usr/lib/ipxe"
    ra_prefix: Annotated[
        str | None,
        Check(ra_prefix),
        Meta(
            description="An IPv6 /64 to send router advertisements for, and to boot UEFI by IPv6 "
            "(PXEv6) in, or null: iPXE waits 14 s "
            "where nobody sends any."
        ),
    ] = None
    dns: Annotated[DnsSettings, Meta(extra=NEWER, description="DNS of the head.")] = DnsSettings()


@dataclass(frozen=True, slots=True)
class Place:
    """Where nodes reach the head: by which of its interfaces and addresses, where boot files, the
    API and state sync are."""

    interface: str
    address: str
    packed: bytes
    http_base: str
    head_url: str
    sync_address: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses are IPv4 text; ports are UDP or TCP; `lease_s` is in seconds. `ra_prefix` None: no
    router advertisements."""

    interface: str
    address: str
    prefix: int
    gateway: str | None
    dns: tuple[str, ...]
    http_port: int
    tftp_port: int
    dhcp_port: int
    lease_s: int
    boot_dir: Path
    ipxe_dir: Path
    head_url: str
    sync_address: str
    ra_prefix: str | None
    names: DnsSettings
    ntp_port: int = 0
    more: tuple[HeadAddress, ...] = ()
    floating: tuple[HeadAddress, ...] = ()
    dhcp: DhcpMode = "serve"
    dhcp_servers: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, site: Site, boot: BootSettings) -> Settings:
        """The head's addresses and the section, together. Raises InputError naming the first that
        cannot be used."""
        if not _INTERFACE.fullmatch(site.interface):
            raise InputError(
                f"cannot use setting interface: {site.interface!r} is not an interface name"
            )
        if not 8 <= site.prefix <= 30:
            raise InputError(
                f"cannot use setting prefix: {site.prefix} is not a whole number from 8 to 30"
            )
        return cls(
            interface=site.interface,
            address=_ipv4("address", site.address),
            prefix=site.prefix,
            gateway=None if site.gateway is None else _ipv4("gateway", site.gateway),
            dns=tuple(_ipv4("dns", server) for server in site.dns),
            http_port=boot.http_port,
            tftp_port=boot.tftp_port,
            dhcp_port=boot.dhcp_port,
            lease_s=boot.lease_s,
            boot_dir=Path(site.data_dir) / "boot",
            ipxe_dir=Path(boot.ipxe_dir),
            head_url=site.head_url,
            sync_address=site.sync_address,
            ra_prefix=boot.ra_prefix,
            names=boot.dns,
            ntp_port=boot.ntp_port,
            dhcp=boot.dhcp,
            dhcp_servers=frozenset(map(packed, boot.dhcp_servers)),
            more=tuple(_usable(more) for more in site.more),
            floating=tuple(site.floating),
        )

    @property
    def heads(self) -> list[HeadAddress]:
        """All the networks that the head is in, the first one first."""
        return [
            HeadAddress(interface=self.interface, address=self.address, prefix=self.prefix),
            *self.more,
        ]

    def at(self, own: HeadAddress) -> Settings:
        """These settings with another one of the head's addresses, and what is reached by it."""
        return (
            self
            if own.address == self.address
            else dataclasses.replace(
                self,
                interface=own.interface,
                address=own.address,
                prefix=own.prefix,
                gateway=None,
                head_url=_moved(self.head_url, own.address),
                sync_address=_moved(self.sync_address, own.address),
            )
        )

    def facing(self, network: Mapping[str, Any] | None) -> Settings:
        """These settings as the nodes of a network have them (moduleapi.network.facing)."""
        return self.at(facing(self.heads, network))

    @property
    def ipv6_interfaces(self) -> list[str]:
        """The interfaces on which machines boot by IPv6."""
        first = [self.interface] if self.ra_prefix is not None else []
        return list(
            dict.fromkeys(
                [*first, *(own.interface for own in self.heads if own.network.version == 6)]
            )
        )

    @property
    def place(self) -> Place:
        """Where nodes reach the head that have these settings."""
        return Place(
            self.interface,
            self.address,
            packed(self.address),
            self.http_base,
            self.head_url,
            self.sync_address,
        )

    @property
    def network(self) -> AnyNetwork:
        """The subnet that the nodes are on."""
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)

    @property
    def listens(self) -> list[HeadAddress]:
        """Where the head answers: its own addresses, and those that float."""
        return [*self.heads, *self.floating]

    @property
    def bind_options(self) -> tuple[tuple[int, int, int], ...]:
        """The socket options for binding the address: it may come later."""
        floats = self.address in [one.address for one in self.floating]
        return (free_bind(self.address),) if floats else ()

    @property
    def _floating_here(self) -> tuple[str, ...]:
        """The address, if there is one, that whichever head leads has in this network."""
        return tuple(one.address for one in self.floating if one.network == self.network)

    @property
    def told_ntp(self) -> tuple[str, ...]:
        """The time servers that nodes are told whose network has none of its own: the head, if it
        serves where everybody asks."""
        return (*self._floating_here, self.address) if self.ntp_port == PORT else ()

    @property
    def told_dns(self) -> tuple[str, ...]:
        """The DNS servers that nodes are told whose network has none of its own."""
        return (*self._floating_here, self.address) if self.names.serve else self.dns

    @property
    def told_domain(self) -> str:
        """The domain that nodes are told whose network has none of its own, "" for none."""
        return self.names.domain if self.names.serve else ""

    @property
    def loopback(self) -> bool:
        """Whether the head serves this machine alone: then it has no network of its own."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def http_base(self) -> str:
        """Where nodes fetch boot files, without a slash at the end."""
        return http_base(self.address, self.http_port)


def _usable(more: HeadAddress) -> HeadAddress:
    if not _INTERFACE.fullmatch(more.interface):
        raise InputError(
            f"cannot use setting more_networks: {more.interface!r} is not an interface name"
        )
    return more


def _moved(place: str, address: str) -> str:
    """A place, [SCHEME://]HOST:PORT, at another address."""
    scheme, between, rest = place.rpartition("://")
    return f"{scheme}{between}{bracketed(address)}:{rest.rpartition(':')[2]}"


def http_base(address: str, port: int) -> str:
    """Where nodes fetch boot files from a head at this address."""
    return f"http://{bracketed(address)}:{port}/boot"


def packed(address: str) -> bytes:
    """The four or sixteen bytes of a checked IP address."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _ipv4(name: str, value: Any) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise InputError(f"cannot use setting {name}: {value!r} is not an IPv4 address") from None
