"""At which addresses of this machine a server of its own is reached."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import subprocess

log = logging.getLogger("layercake.addresses")


def reached_at(listen: str) -> list[str]:
    """The addresses at which a server is reached that listens on `listen`, an address or a name: a
    wildcard address (0.0.0.0, ::) stands for all that the machine has now, without loopback. Those
    of one link (fe80::1%eth0) are without it: which link that is a node cannot know. What cannot be
    found out is left out, and the log says so."""
    try:
        address = ipaddress.ip_address(listen)
    except ValueError:
        return _named(listen)
    if not address.is_unspecified:
        return [_without_link(str(address))]
    # A socket at :: takes IPv4 in, too (ipv6(7), IPV6_V6ONLY).
    return [own for own in _own() if address.version == 6 or ":" not in own]


def _named(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning("cannot find the addresses of %s: %s", name, error.strerror)
        return []
    return list(dict.fromkeys(_without_link(str(place[0])) for *_, place in found))


def _without_link(address: str) -> str:
    return address.partition("%")[0]


def _own() -> list[str]:
    try:
        said = subprocess.run(
            ["ip", "-j", "addr", "show"], capture_output=True, check=True, timeout=10.0
        )
        links = json.loads(said.stdout)
        return [
            entry["local"]
            for link in links
            for entry in link.get("addr_info", ())
            if entry["scope"] != "host"
        ]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        log.warning("cannot find this machine's addresses: %s", error)
        return []
