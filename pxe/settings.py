"""The settings of the boot service, checked once at start. ARCHITECTURE.md ("Records over the module API") lists them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError

_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}")


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

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The subnet that the nodes are on."""
        return ipaddress.IPv4Network(f"{self.address}/{self.prefix}", strict=False)

    @property
    def http_base(self) -> str:
        """Where nodes fetch boot files, without a slash at the end."""
        return f"http://{self.address}:{self.http_port}/boot"


def packed(address: str) -> bytes:
    """The four bytes of a checked IPv4 address."""
    return socket.inet_aton(address)


def _ipv4(name: str, value: Any) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise InputError(f"cannot use setting pxe.{name}: {value!r} is not an IPv4 address") from None


def _number(raw: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"cannot use setting pxe.{name}: {value!r} is not a whole number from {low} to {high}")
    return value


def _text(raw: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str) or not value:
        raise InputError(f"cannot use setting pxe.{name}: {'it is missing' if value is None else f'{value!r} is not a text'}")
    return value


def _ra_prefix(value: Any) -> str | None:
    if value is None:
        return None
    try:
        network = ipaddress.IPv6Network(value)
    except ValueError:
        raise InputError(f"cannot use setting pxe.ra_prefix: {value!r} is not an IPv6 network", hint="such as fd99::/64") from None
    if network.prefixlen != 64:
        raise InputError(f"cannot use setting pxe.ra_prefix: {value} is not a /64, and only a /64 gives nodes addresses (RFC 4862)")
    return str(network)


def from_mapping(raw: Mapping[str, Any]) -> Settings:
    """Checks the settings that the head sent. Raises InputError naming the first one that cannot be used."""
    interface = _text(raw, "interface")
    if not _INTERFACE.fullmatch(interface):
        raise InputError(f"cannot use setting pxe.interface: {interface!r} is not an interface name")
    gateway = raw.get("gateway")
    return Settings(
        interface=interface,
        address=_ipv4("address", raw.get("address")),
        prefix=_number(raw, "prefix", 24, 8, 30),
        gateway=None if gateway is None else _ipv4("gateway", gateway),
        dns=tuple(_ipv4("dns", server) for server in raw.get("dns") or ()),
        http_port=_number(raw, "http_port", 8080, 1, 65535),
        tftp_port=_number(raw, "tftp_port", 69, 1, 65535),
        dhcp_port=_number(raw, "dhcp_port", 67, 1, 65534),
        lease_s=_number(raw, "lease_s", 3600, 60, 0x7FFFFFFF),
        boot_dir=Path(_text(raw, "boot_dir")),
        ipxe_dir=Path(_text(raw, "ipxe_dir", "/usr/lib/ipxe")),
        head_url=_text(raw, "head_url"),
        sync_address=_text(raw, "sync_address"),
        ra_prefix=_ra_prefix(raw.get("ra_prefix")),
    )
