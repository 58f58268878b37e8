"""Whether a BMC is at an address, without a login: by IPMI (Get Channel Authentication
Capabilities, Get System GUID) and by the root of a Redfish service, which both answer everybody.
Only when a person asks, at a bounded rate, a page of addresses at a time.

What answers is a stranger: its words are cut and cleaned, it is sent nothing secret, and no
redirect is followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from layercake.base.text import printable
from layercake.kraken.errors import InputError, LayercakeError
from powerman.ipmi import rmcp
from powerman.ipmi.line import Pace, open_line
from powerman.redfish.web import read_json, tls_context
from powerman.settings import BmcSpec

PAGE = 256
"""Addresses that are asked at a time."""
A_SECOND = 100.0
"""Addresses that are begun with in a second."""
IPMI_PORT = 623
REDFISH_PORT = 443
_WAITS_S = (0.4, 0.6, 1.0)
_ROOT = "/redfish/v1/"
_LIMIT_S = 5.0
_CONNECT_S = 2.3
_MOST = 64
_MOST_BYTES = 64 << 10
_MAKERS = {2: "IBM", 11: "HPE", 343: "Intel", 674: "Dell", 10876: "Supermicro", 19046: "Lenovo"}
"""Of IANA's enterprise numbers those that are seen most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBmc:
    """A BMC: how it answers (ipmi or redfish), what it says of itself, and the node that it is of
    by its address, "" for none."""

    address: str
    protocol: str
    vendor: str = ""
    product: str = ""
    version: str = ""
    uuid: str = ""
    node: str = ""


async def scan(
    addresses: Sequence[str],
    session: aiohttp.ClientSession,
    ipmi_port: int = IPMI_PORT,
    redfish_port: int = REDFISH_PORT,
) -> list[FoundBmc]:
    """What answers at these addresses, in their order. Raises InputError for one that is no IPv4
    address of one machine."""
    for address in addresses:
        _check(address)

    async def one(number: int, address: str) -> list[FoundBmc]:
        await asyncio.sleep(number / A_SECOND)
        bmcs = await asyncio.gather(
            by_ipmi(address, ipmi_port), by_redfish(address, session, redfish_port)
        )
        return [each for each in bmcs if each is not None]

    return [
        each
        for bmcs in await asyncio.gather(*map(one, range(len(addresses)), addresses))
        for each in bmcs
    ]


def host_of(spec: BmcSpec) -> str:
    """The address, or the name, at which a node's BMC is."""
    return urlsplit(spec.address).hostname or "" if "//" in spec.address else spec.address


def _check(address: str) -> None:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        raise InputError(f"cannot scan {address[:40]!r}: it is no IPv4 address") from None
    if (
        parsed.is_multicast
        or parsed.is_unspecified
        or parsed == ipaddress.IPv4Address("255.255.255.255")
    ):
        raise InputError(f"cannot scan {parsed}: it is no machine's address")


async def by_ipmi(address: str, port: int = IPMI_PORT) -> FoundBmc | None:
    """What a BMC says by IPMI; None if none answers."""
    try:
        line = await open_line(address, port, Pace())
        try:
            capabilities = await line.exchange(rmcp.probe, rmcp.parse_probe, _WAITS_S)
            guid = b""
            with contextlib.suppress(LayercakeError):  # some do not know the question
                guid = await line.exchange(rmcp.ask_guid, rmcp.parse_guid, _WAITS_S[:1])
        finally:
            line.close()  # nobody speaks to it again soon
    except LayercakeError:
        return None
    maker = _MAKERS.get(
        capabilities.vendor, f"enterprise {capabilities.vendor}" if capabilities.vendor else ""
    )
    return FoundBmc(
        address=address,
        protocol="ipmi",
        vendor=maker,
        version="IPMI 2.0" if capabilities.ipmi_2_0 else "IPMI 1.5",
        uuid=guid_text(guid),
    )


def guid_text(guid: bytes) -> str:
    """A system's GUID as others write its UUID. By IPMI the last byte comes first (section 20.8);
    many BMCs send it as RFC 4122 or SMBIOS have it instead, so the first order in which it is a
    UUID of a known version counts. "" for none, and for all zeros."""
    if len(guid) != 16 or not any(guid):
        return ""
    orders = (uuid.UUID(bytes=guid[::-1]), uuid.UUID(bytes=guid), uuid.UUID(bytes_le=guid))
    return str(
        next(
            (one for one in orders if one.variant == uuid.RFC_4122 and one.version in range(1, 6)),
            orders[0],
        )
    )


async def by_redfish(
    address: str, session: aiohttp.ClientSession, port: int = REDFISH_PORT
) -> FoundBmc | None:
    """What a Redfish service says at its root; None if none answers. One without TLS is asked
    without."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            try:
                root = await _root(session, f"https://{address}:{port}{_ROOT}")
            except aiohttp.ClientSSLError:
                root = await _root(session, f"http://{address}:{port}{_ROOT}")
    except (TimeoutError, aiohttp.ClientError, LayercakeError, OSError):
        return None
    version = _printable(root.get("RedfishVersion"))
    if not version:
        return None
    return FoundBmc(
        address=address,
        protocol="redfish",
        vendor=_printable(root.get("Vendor")),
        product=_printable(root.get("Product")),
        version=f"Redfish {version}",
        uuid=_printable(root.get("UUID")).lower(),
    )


async def _root(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    async with session.get(
        url,
        ssl=tls_context(False),
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        headers={"OData-Version": "4.0", "Accept": "application/json", "Connection": "close"},
    ) as response:
        if 300 <= response.status < 400 and url.endswith("/"):  # some have it without the slash
            return await _root(session, url.removesuffix("/"))
        return await read_json(response, _MOST_BYTES) if response.status == 200 else {}


def _printable(value: object) -> str:
    """A stranger's word, for people."""
    return printable(value, _MOST) if isinstance(value, str) else ""
