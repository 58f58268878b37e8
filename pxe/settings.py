"""The settings of the boot service: its section of config.yaml, and that together with the head's own addresses."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import NEWER, Check, Mistake, text
from layercake.moduleapi.module import Site

_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}")


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


class BootSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Network boot."""

    http_port: Annotated[int, Meta(ge=1, le=65535, description="TCP port of the web server for boot files.")] = 8080
    tftp_port: Annotated[int, Meta(ge=1, le=65535, description="UDP port of TFTP.")] = 69
    dhcp_port: Annotated[int, Meta(ge=1, le=65534, description="UDP port of DHCP; clients have the next one.")] = 67
    lease_s: Annotated[int, Meta(ge=60, le=0x7FFFFFFF, description="Seconds that an address is leased for.")] = 3600
    attempts: Annotated[int, Meta(ge=1, le=100, description="Boots that are tried before a node is quarantined.")] = 3
    join_s: Annotated[float, Meta(
        ge=10, le=28800, extra=NEWER, description="Seconds from power-on until a node's agent joins, before the boot counts as "
        "failed, where the inventory has no boot_timeout.")] = 1200.0
    step_s: Annotated[float, Meta(
        ge=10, le=28800, extra=NEWER, description="Seconds for each further step of a boot, once the firmware was seen.")] = 300.0
    ipxe_dir: Annotated[str, Meta(min_length=1, description="Where undionly.kpxe and snponly.efi are.")] = "/usr/lib/ipxe"
    ra_prefix: Annotated[str | None, Check(ra_prefix), Meta(
        description="An IPv6 /64 to send router advertisements for, and to boot UEFI by IPv6 (PXEv6) in, or null: iPXE waits 14 s "
        "where nobody sends any.")] = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses are IPv4 text; ports are UDP or TCP; `lease_s` is in seconds. `ra_prefix` None: no router advertisements."""

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

    @classmethod
    def of(cls, site: Site, boot: BootSettings) -> Settings:
        """The head's addresses and the section, together. Raises InputError naming the first that cannot be used."""
        if not _INTERFACE.fullmatch(site.interface):
            raise InputError(f"cannot use setting interface: {site.interface!r} is not an interface name")
        if not 8 <= site.prefix <= 30:
            raise InputError(f"cannot use setting prefix: {site.prefix} is not a whole number from 8 to 30")
        return cls(
            interface=site.interface, address=_ipv4("address", site.address), prefix=site.prefix,
            gateway=None if site.gateway is None else _ipv4("gateway", site.gateway),
            dns=tuple(_ipv4("dns", server) for server in site.dns), http_port=boot.http_port, tftp_port=boot.tftp_port,
            dhcp_port=boot.dhcp_port, lease_s=boot.lease_s, boot_dir=Path(site.data_dir) / "boot", ipxe_dir=Path(boot.ipxe_dir),
            head_url=site.head_url, sync_address=site.sync_address, ra_prefix=boot.ra_prefix,
        )

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The subnet that the nodes are on."""
        return ipaddress.IPv4Network(f"{self.address}/{self.prefix}", strict=False)

    @property
    def loopback(self) -> bool:
        """Whether the head serves this machine alone: then it has no network of its own."""
        return ipaddress.IPv4Address(self.address).is_loopback

    @property
    def http_base(self) -> str:
        """Where nodes fetch boot files, without a slash at the end."""
        return http_base(self.address, self.http_port)


def http_base(address: str, port: int) -> str:
    """Where nodes fetch boot files from a head at this address."""
    return f"http://{address}:{port}/boot"


def packed(address: str) -> bytes:
    """The four bytes of a checked IPv4 address."""
    return socket.inet_aton(address)


def _ipv4(name: str, value: Any) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise InputError(f"cannot use setting {name}: {value!r} is not an IPv4 address") from None
