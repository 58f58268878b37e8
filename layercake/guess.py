"""What `layercake init` can find out about this machine's network, and what it has to ask.

`read_machine` reads the machine; `choose` is a pure function from what was seen and what was said
to the settings' first values.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError, OperationFailed

NAMESERVERS = Path("/etc/resolv.conf")
USUAL_PREFIX = 24
NONE = "none"
"""What is said for a gateway or DNS servers that nodes shall not have."""

Ask = Callable[[str, Sequence[str], str], str]
"""Asks a person: the question, the answers there are (none: any), and the one that Enter gives."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`addresses`: our IPv4 addresses on each interface, with their networks; `gateways`: the
    default route out of each that has one; `dns`: the servers that this machine asks, without those
    that only it can reach."""

    addresses: Mapping[str, tuple[ipaddress.IPv4Interface, ...]]
    gateways: Mapping[str, str] = field(default_factory=dict)
    dns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What was said by options; None is not said."""

    interface: str | None = None
    address: str | None = None
    gateway: str | None = None
    dns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The first values of the settings of these names."""

    interface: str
    address: str
    prefix: int
    gateway: str | None
    dns: tuple[str, ...]


# -- read


def read_machine() -> Machine:
    """What this machine's network is. Raises OperationFailed if ip(8) does not say."""
    addresses = {
        entry["ifname"]: tuple(
            ipaddress.IPv4Interface(f"{a['local']}/{a['prefixlen']}")
            for a in entry.get("addr_info", [])
        )
        for entry in _ip("addr", "show")
    }
    gateways = {
        route["dev"]: str(route["gateway"])
        for route in reversed(_ip("route", "show", "default"))
        if "gateway" in route
    }
    try:
        text = NAMESERVERS.read_text()
    except OSError:
        text = ""
    return Machine(addresses, gateways, nameservers(text))


def _ip(*words: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            ["ip", "-j", "-4", *words],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise OperationFailed(
            "cannot look at the network: ip is not installed", hint="apt-get install iproute2"
        ) from None
    if done.returncode != 0:
        raise OperationFailed(f"cannot look at the network: {done.stderr.strip()}")
    found: list[dict[str, Any]] = [entry for entry in json.loads(done.stdout or "[]") if entry]
    return found


def nameservers(text: str) -> tuple[str, ...]:
    """The IPv4 servers of a resolv.conf (resolv.conf(5)) that others can reach, too."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                address = ipaddress.IPv4Address(words[1])
            except ValueError:
                continue
            if not address.is_loopback:
                found.append(str(address))
    return tuple(dict.fromkeys(found))


# -- choose


def choose(machine: Machine, given: Given, ask: Ask | None) -> Choice:
    """What was said, or else found out, or else asked. Raises InputError for what cannot be, and
    names the option for what is missing when there is nobody to `ask`."""
    interface = given.interface or _interface(machine, ask)
    if interface not in machine.addresses:
        raise InputError(
            f"cannot use interface {interface!r}: there is no such interface", hint="see `ip link`"
        )
    ours = {str(a.ip): a for a in machine.addresses[interface]}
    address = given.address or _address(interface, ours, ask)
    gateway = given.gateway
    if gateway is None:
        gateway = _gateway(interface, machine, ask)
    if gateway == NONE:
        gateway = None
    dns = given.dns
    if dns is None:
        dns = _dns(machine, ours, gateway is not None, ask)
    nearest = ours.get(address) or next(iter(ours.values()), None)
    prefix = nearest.network.prefixlen if nearest is not None else USUAL_PREFIX
    return Choice(
        interface,
        _ipv4(address, "--address"),
        prefix,
        None if gateway is None else _ipv4(gateway, "--gateway"),
        tuple(_ipv4(server.strip(), "--dns") for server in dns if server.strip() != NONE),
    )


def _gateway(interface: str, machine: Machine, ask: Ask | None) -> str | None:
    gateway = machine.gateways.get(interface)
    if gateway is None and ask is not None:
        return ask("The nodes' default gateway", (), NONE)
    return gateway


def _dns(
    machine: Machine, ours: Mapping[str, ipaddress.IPv4Interface], routed: bool, ask: Ask | None
) -> tuple[str, ...]:
    """The DNS servers of this machine that nodes reach: all, if they are `routed` to other
    networks, else those in one of our networks."""
    servers = tuple(
        server
        for server in machine.dns
        if routed or any(ipaddress.IPv4Address(server) in own.network for own in ours.values())
    )
    if servers or ask is None:
        return servers
    return tuple(ask("The nodes' DNS servers, with commas between them", (), NONE).split(","))


def _interface(machine: Machine, ask: Ask | None) -> str:
    able = {
        name: found
        for name, found in machine.addresses.items()
        if found and not found[0].is_loopback
    }
    if len(able) == 1:
        return next(iter(able))
    if not able:
        raise InputError(
            "cannot choose the nodes' interface: none has an IPv4 address", hint="see `ip address`"
        )
    if ask is not None:
        return ask(
            f"The network interface that the nodes are on ({_listed(able)})", tuple(able), ""
        )
    raise InputError(
        f"cannot choose the nodes' interface: there are {_listed(able)}", hint="--interface NAME"
    )


def _address(interface: str, ours: Mapping[str, ipaddress.IPv4Interface], ask: Ask | None) -> str:
    if not ours:
        raise InputError(
            f"cannot use interface {interface}: it has no IPv4 address",
            hint="give it one, or say --address",
        )
    if len(ours) == 1:
        return next(iter(ours))
    if ask is not None:
        return ask(f"The head's address on {interface}", tuple(ours), next(iter(ours)))
    raise InputError(
        f"cannot choose the head's address on {interface}: there are {', '.join(ours)}",
        hint="--address ADDRESS",
    )


def _listed(able: Mapping[str, Sequence[ipaddress.IPv4Interface]]) -> str:
    return ", ".join(f"{name} {found[0]}" for name, found in able.items())


def _ipv4(word: str | None, option: str) -> str:
    try:
        return str(ipaddress.IPv4Address(word or ""))
    except ValueError:
        raise InputError(f"cannot use {option} {word}: it is not an IPv4 address") from None
