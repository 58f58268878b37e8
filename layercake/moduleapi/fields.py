"""Checks of single values from YAML, for the structs in which modules declare their settings and
their part of a node.

A struct's field says what it takes by its type, by `msgspec.Meta` (bounds, pattern, and the
description that the reference prints) and, where that is not enough, by a `Check` in its Annotated.
A check takes the plain value and returns the validated one, or raises Mistake; the reader knows
file and line. What passes ends up in DHCP answers, boot scripts and kernel command lines, so a
value is refused unless it is known to be harmless there.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from layercake.base.text import describe, nearest, show

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""One label of a host name (RFC 1123), in lower case."""


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

NEWER = {"newer": True}
"""For `Meta(extra=)`: a head of version 0.1 does not know this setting, so it is written only where
it is not as usual."""


class Mistake(Exception):
    """What is wrong with a value, and what to write instead. The reader knows the place; `field`
    names another field than the one that is being read, for a mistake that shows only when several
    are looked at together."""

    def __init__(self, message: str, hint: str = "", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field


@dataclass(frozen=True, slots=True)
class Check:
    """How a field is read beyond its type. `one` checks a value. `own`: each node has one of its
    own, so it stands under nodes, and for a node range it is a list, or a start that counts up by
    `after` (start, steps). `each`: it may be such a list. `several`: a node has several of them,
    `after` gives a tuple, and in a list of starts each counts up. `missing` is the hint when it is
    required and not there. `merged`: it is a mapping, and what a later layer says is put over what
    an earlier one said, key by key. `required` is filled in by the reader: the field has no
    default."""

    one: Callable[[Any], Any]
    after: Callable[[str, int], Any] | None = None
    own: bool = False
    each: bool = False
    missing: str = ""
    several: bool = False
    merged: bool = False
    required: bool = False


def text(value: object) -> str:
    """A text value."""
    if isinstance(value, str):
        return value
    hint = "quote it to make it text" if isinstance(value, bool | int | float) else ""
    raise Mistake(f"expected text, found {describe(value)}", hint)


def mapping(
    value: object, known: dict[str, Callable[[object], Any]], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A mapping of known keys to what their checks make of the values; those in `required` have to
    be there. Raises Mistake that names the key."""
    if not isinstance(value, dict):
        raise Mistake(f"expected a mapping with {', '.join(known)}, found {describe(value)}")
    for key in value:
        if key not in known:
            raise Mistake(f"unknown key {show(str(key))}", nearest(str(key), known))
    if missing := [key for key in required if key not in value]:
        raise Mistake(f"{missing[0]} is missing")
    return {key: _named(key, known[key], its) for key, its in value.items()}


def _named(key: str, check: Callable[[object], Any], value: object) -> Any:
    try:
        return check(value)
    except Mistake as mistake:
        raise Mistake(f"{key}: {mistake.message}", mistake.hint) from None


def matching(pattern: re.Pattern[str], what: str) -> Callable[[object], str]:
    """A check for a text of a form. `what` says what it should be."""

    def check(value: object) -> str:
        if not pattern.fullmatch(text(value)):
            raise Mistake(f"{show(text(value))} is no {what}")
        return text(value)

    return check


def number(
    least: float, most: float, what: str, hint: str = "", *, kind: type[int | float] = int
) -> Callable[[object], Any]:
    """A check for a number of a `kind`; `what` says what it counts, such as "seconds"."""

    def check(value: Any) -> int | float:
        known = isinstance(value, int | kind) and not isinstance(value, bool)
        if not known or not least <= value <= most:
            found = value if known else describe(value)
            raise Mistake(f"expected {what} from {least} to {most}, found {found}", hint)
        return kind(value)

    return check


def one_of(*choices: str) -> Callable[[object], str]:
    """A check for one word out of a few."""

    def check(value: object) -> str:
        word = text(value)
        if word not in choices:
            raise Mistake(
                f"expected {' or '.join(choices)}, found {show(word)}", nearest(word, choices)
            )
        return word

    return check


def number_of(word: str) -> tuple[int, int]:
    """The version of an IP address, and its number. Raises ValueError. IPv4 costs a tenth of what
    ipaddress takes."""
    if word.isascii() and "\0" not in word:
        try:
            return 4, int.from_bytes(socket.inet_pton(socket.AF_INET, word))
        except OSError:
            pass
    found = ipaddress.ip_address(word)
    return found.version, int(found)


def ipv4(word: str) -> str:
    """A host's IPv4 address."""
    try:
        version, number = number_of(word)
    except ValueError:
        version = 0
        number = 0
    if version != 4:
        raise Mistake(
            f"{show(word)} is not an IPv4 address",
            "four numbers up to 255, as 10.0.0.17, without a prefix",
        )
    return _of_host(number, word)


def _of_host(number: int, word: str) -> str:
    """The IPv4 address of a number, if a host can have it (RFC 1122 section 3.2.1.3); `word` is as
    it was written."""
    if 224 <= number >> 24 <= 239 or number >> 24 == 127 or number in (0, 0xFFFFFFFF):
        raise Mistake(
            f"{show(word)} cannot be a node's address",
            "multicast, loopback and broadcast addresses are no node's own",
        )
    return word


_SERVER = re.compile(
    r"https://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


def https_url(value: object) -> str:
    """The URL of a server, without a path, or nothing. Its host is an IP address or an ASCII name:
    it goes into a certificate."""
    word = text(value).rstrip("/")
    if word and not _is_server(word):
        raise Mistake(
            f"{word!r} is not the URL of a server: https://, an IP address or a name of ASCII "
            "letters, digits, '-', '_' and '.', and perhaps a port from 1 to 65535",
            "such as https://head.example.org:8443",
        )
    return word


def _is_server(word: str) -> bool:
    found = _SERVER.fullmatch(word)
    if found is None or not 1 <= int(found["port"] or 443) <= 65535:
        return False
    address = found["six"] or found["host"]
    if found["six"] or re.fullmatch(r"[0-9.]+", address):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return False
    return True


def host_ip(word: str) -> str:
    """A host's IP address, of either kind."""
    return ipv6(word) if ":" in word else ipv4(word)


def ipv6(word: str) -> str:
    """A host's IPv6 address that is good beyond its link."""
    try:
        address = ipaddress.IPv6Address(word)
    except ValueError:
        raise Mistake(
            f"{show(word)} is not an IPv6 address", "such as fd00:20::17, without a prefix"
        ) from None
    if (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
        or address.ipv4_mapped
    ):
        raise Mistake(
            f"{show(word)} cannot be a node's address",
            "multicast, loopback and link-local addresses are no node's own",
        )
    return str(address)


@functools.lru_cache(maxsize=64)
def _start(word: str) -> int | None:
    """The number of a host's IPv4 address that is counted up from, None for IPv6. Nodes of a range
    share it."""
    return None if ":" in word else number_of(ipv4(word))[1]


def ip_after(word: str, steps: int) -> str:
    """The address `steps` further on."""
    start = _start(word)
    if start is not None and 0 <= (number := start + steps) <= 0xFFFFFFFF:
        return _of_host(
            number, f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        )
    try:
        return host_ip(str(ipaddress.ip_address(host_ip(word)) + steps))
    except ipaddress.AddressValueError:
        raise Mistake(f"counting up from {show(word)} leaves the IP addresses") from None


def mac(word: str) -> str:
    """An Ethernet address, brought to lower case with colons. Multicast and all-zero ones are
    refused."""
    address = word.lower().replace("-", ":")
    if not _MAC.fullmatch(address):
        raise Mistake(
            f"{show(word)} is not a MAC address", "write six pairs of hex digits: 52:54:00:12:34:56"
        )
    if int(address[:2], 16) & 1 or address == "00:00:00:00:00:00":
        raise Mistake(
            f"{show(word)} is not the address of one card",
            "multicast and all-zero addresses cannot be a node's",
        )
    return address


def mac_after(word: str, steps: int) -> str:
    """The MAC address `steps` further on."""
    number = int(mac(word).replace(":", ""), 16) + steps
    if number >= 1 << 48:
        raise Mistake(f"counting up from {show(word)} leaves the MAC addresses")
    return mac(":".join(f"{number:012x}"[i : i + 2] for i in range(0, 12, 2)))


port = number(1, 65535, "a port number", "IPMI has 623, Redfish 443")
"""A check for a UDP or TCP port."""


def host(word: str) -> str:
    """An IP address or a host name (RFC 1123), in lower case."""
    try:
        return str(ipaddress.ip_address(word))
    except ValueError:
        pass
    if (
        re.fullmatch(r"[0-9.]+", word)
        or not all(LABEL.fullmatch(label) for label in word.lower().split("."))
        or len(word) > 253
    ):
        raise Mistake(
            f"{show(word)} is neither an IP address nor a host name",
            "the port goes into the key port",
        )
    return word.lower()


def secret_name(directory: str) -> Callable[[object], str]:
    """A check for the name of a secret in a directory of the directory of secrets, or nothing."""

    def check(value: object) -> str:
        word = text(value)
        if word and not _FILE_NAME.fullmatch(word):
            raise Mistake(
                f"{show(word)} is no secret's name",
                f"the name of a file in {directory}/ in the directory of secrets",
            )
        return word

    return check


def not_in_the_open(scheme: str, host: str) -> None:
    """Raises Mistake for what would be told to another machine by http, without encryption."""
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if scheme == "http" and not here:
        raise Mistake(
            f"what is told to {show(host)} would be open to all on the way",
            "https; http is for this machine alone",
        )
