"""The addresses of BMCs: host names, IP addresses, URLs of Redfish services, and what a program of
the site's is told."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from layercake.base.text import show
from layercake.moduleapi.fields import Mistake, host, ip_after, text

PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%=,/+-]{0,199}")
"""What a program is told of a machine: no option, no blanks, and nothing that a shell minds."""
_OUTLET = re.compile(r"(?<=/)[0-9]{1,9}(?=,|$)")


def address(value: object) -> str:
    """A BMC's address, before its driver is known: a host name, an IP, an http(s) URL without user,
    path and query, or what a program is told."""
    plain = text(value)
    if "://" in plain:
        return _service_url(plain)
    try:
        return host(plain)
    except Mistake:
        if PLACE.fullmatch(plain):
            return plain  # `complete` minds for which driver
        raise


def _service_url(word: str) -> str:
    """The root of a Redfish service. Raises Mistake."""
    url = _url(word)
    if url.scheme not in ("http", "https"):
        raise Mistake(
            f"{show(url.scheme)} is not a way to a BMC", "write https://HOST, or HOST alone"
        )
    if url.username is not None or url.password is not None:
        # Not shown: it holds a password.
        raise Mistake(
            "a user or password may not stand in the address", "use the keys username and password"
        )
    if url.path not in ("", "/") or url.query or url.fragment:
        raise Mistake(
            f"{show(word)} has more than host and port",
            "the path of the system goes into the key system",
        )
    name = host(url.hostname or "")
    name = f"[{name}]" if ":" in name else name
    port = url_port(word)
    return f"{url.scheme}://{name}:{port}" if port else f"{url.scheme}://{name}"


def address_after(word: str, steps: int) -> str:
    """An address given by an IPv4 address, or by places behind a /, `steps` further on."""
    if "://" not in word and _OUTLET.search(word):
        return address(
            _OUTLET.sub(lambda number: str(int(number[0]) + steps).zfill(len(number[0])), word)
        )
    match = re.fullmatch(r"(https?://)?([0-9.]+)(:[0-9]+)?", word)
    if not match:
        raise Mistake(
            f"cannot count up from {show(word)}",
            "only an IPv4 address or an outlet can be counted up: 10.1.0.1+, "
            "https://10.1.0.1+:8000 or pdu1/7+",
        )
    return address(f"{match[1] or ''}{ip_after(match[2], steps)}{match[3] or ''}")


def url_port(word: str) -> int | None:
    """The port in a URL, None if there is none. Raises Mistake when it is out of range."""
    try:
        return _url(word).port
    except ValueError:
        raise Mistake("the port in the URL does not exist", "ports go from 1 to 65535") from None


def _url(word: str) -> SplitResult:
    if re.search(r"[\s\x00-\x1f\x7f]", word):
        raise Mistake("an address has no spaces or control characters")
    try:
        return urlsplit(word)
    except ValueError:
        raise Mistake(f"{show(word)} is not a URL", "as https://10.98.1.11:8000") from None


def ip_in(address: str) -> str:
    """The IP address in a BMC's address or URL, "" if there is a name."""
    name = urlsplit(address).hostname or "" if "://" in address else address
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return ""


_STANDARD_PORTS = (623, 443, 80)


def endpoint(address: str, port: int) -> tuple[str, int]:
    """What a BMC's address and port lead to: the same for all ways of writing it, and for the
    standard ports of one machine, which are one BMC's."""
    name = (urlsplit(address).hostname or "") if "://" in address else address
    with contextlib.suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    return name.lower(), 0 if port in _STANDARD_PORTS else port


def key_of(address: str, port: int, system: str | None) -> str:
    """What a simulation knows a made-up BMC by."""
    return f"{address}:{port}{system or ''}"
