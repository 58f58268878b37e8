"""The node's identity and network, read from the kernel command line.

The command line was written by the head, but it crossed the network in clear: every value is
checked before it is used.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from layercake.kraken.errors import InputError

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_MTU = re.compile(r"[0-9]{3,5}", re.ASCII)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_HEAD = re.compile(r"https://[A-Za-z0-9.\[\]:-]{1,255}")
_SYNC = re.compile(r"[A-Za-z0-9.\[\]:-]{1,255}:[0-9]{1,5}")
_OTHER_HEADS = re.compile(
    rf"(?:{_HEAD.pattern}@{_SYNC.pattern})(?:,{_HEAD.pattern}@{_SYNC.pattern}){{0,15}}"
)
_TIME = re.compile(r"[0-9]{1,11}", re.ASCII)
_BOOT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_.~-]{1,256}")


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address with its prefix length; `family` is socket.AF_INET or AF_INET6."""

    family: int
    packed: bytes
    prefix: int


@dataclass(frozen=True, slots=True)
class Identity:
    """What the command line says. `token` is a secret; "" and None stand for what is not given.
    `time` is the head's when it wrote the line, in seconds since the epoch. `boot` names the boot
    set that this machine runs. `domain`, `mtu`, `routes` (where to, by which router) and `ntp`
    (time servers) are those of its network. `discover`: no inventory knows this machine, it is to
    report what it is. `other_heads` are those beside `head`, with their `sync`."""

    node: str
    name: str
    mac: str
    address: Address | None
    gateway: Address | None
    dns: tuple[str, ...]
    head: str
    sync: str
    token: str
    time: int | None = None
    boot: str = ""
    domain: str = ""
    mtu: int | None = None
    routes: tuple[tuple[Address, Address], ...] = ()
    ntp: tuple[str, ...] = ()
    discover: bool = False
    other_heads: tuple[tuple[str, str], ...] = ()

    @property
    def search(self) -> str:
        """The domain that short names are looked for in: the network's, or that of a name with
        dots; "" for none."""
        return self.domain or self.name.partition(".")[2]

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names by which the machine knows itself, the longest first."""
        short = self.name.partition(".")[0]
        full = self.name if "." in self.name or not self.domain else f"{self.name}.{self.domain}"
        return tuple(dict.fromkeys(name for name in (full, self.name, short) if name))


def layercake_parameters(text: str) -> dict[str, str]:
    """The layercake.* words of a kernel command line; a later one wins, as in the kernel. Other
    words are not ours."""
    parameters = {}
    for argument in text.split():
        key, separator, value = argument.partition("=")
        if key.startswith("layercake.") and separator:
            parameters[key[10:]] = value
    return parameters


def _address(word: str, value: str, *, default_prefix: int | None = None) -> Address:
    host, _, prefix = value.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bits = 128 if family == socket.AF_INET6 else 32
    try:
        packed = socket.inet_pton(family, host)
    except (OSError, ValueError):
        raise InputError(
            f"cannot use layercake.{word}: {value[:64]!r} is not an IP address"
        ) from None
    if not prefix and default_prefix is not None:
        return Address(family, packed, bits)
    if not re.fullmatch(r"[0-9]{1,3}", prefix) or not 0 < int(prefix) <= bits:
        raise InputError(
            f"cannot use layercake.{word}: {value[:64]!r} has no prefix length from 1 to {bits}"
        )
    return Address(family, packed, int(prefix))


def _servers(found: dict[str, str], word: str) -> tuple[str, ...]:
    """Addresses with commas between them."""
    addresses = (
        _address(word, value, default_prefix=0) for value in found.get(word, "").split(",") if value
    )
    return tuple(socket.inet_ntop(a.family, a.packed) for a in addresses)


def _route(value: str) -> tuple[Address, Address]:
    """SUBNET/LENGTH@ROUTER."""
    target, _, router = value.partition("@")
    route = _address("routes", target), _address("routes", router, default_prefix=0)
    if route[0].family != route[1].family:
        raise InputError(f"cannot use layercake.routes: {value[:64]!r} has two kinds of address")
    return route


def _checked(found: dict[str, str], word: str, pattern: re.Pattern[str], what: str) -> str:
    value = found.get(word, "")
    value = value.lower() if word in ("mac", "node") else value
    if value and not pattern.fullmatch(value):
        printed = "it" if word == "token" else repr(value[:64])
        raise InputError(f"cannot use layercake.{word}: {printed} is not {what}")
    return value


def _other_heads(found: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """URL@SYNC, with commas between them."""
    told = _checked(found, "other_heads", _OTHER_HEADS, "a list of https://HOST:PORT@HOST:PORT")
    pairs = (one.partition("@") for one in told.split(",") if one)
    return tuple((url, sync) for url, _, sync in pairs)


def parse_identity(text: str) -> Identity:
    """The identity on a command line. Raises InputError that names the word which is wrong."""
    parameters = layercake_parameters(text)
    gateway = parameters.get("gateway", "")
    return Identity(
        node=_checked(parameters, "node", _UUID, "a UUID"),
        name=_checked(parameters, "name", _NAME, "a host name"),
        mac=_checked(parameters, "mac", _MAC, "a MAC address"),
        address=_address("ip", parameters["ip"]) if parameters.get("ip") else None,
        gateway=_address("gateway", gateway, default_prefix=0) if gateway else None,
        dns=_servers(parameters, "dns"),
        head=_checked(parameters, "head", _HEAD, "an https:// address"),
        sync=_checked(parameters, "sync", _SYNC, "HOST:PORT"),
        token=_checked(parameters, "token", _TOKEN, "a token"),
        time=int(_checked(parameters, "time", _TIME, "a number of seconds"))
        if parameters.get("time")
        else None,
        boot=_checked(parameters, "boot", _BOOT, "a boot set's name"),
        domain=_checked(parameters, "domain", _NAME, "a domain"),
        mtu=int(_checked(parameters, "mtu", _MTU, "a number of bytes"))
        if parameters.get("mtu")
        else None,
        ntp=_servers(parameters, "ntp"),
        discover=parameters.get("discover") == "1",
        other_heads=_other_heads(parameters),
        routes=tuple(_route(route) for route in parameters.get("routes", "").split(",") if route),
    )
