"""Files that images get without asking: what tells one node from the next, and is a chore by hand
everywhere."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from layercake.base.text import grouped
from layercake.features.files.entry import Entry
from layercake.features.files.inventory import ALL, METADATA
from layercake.inventory.schema import Node

HOSTS_MOST = 256
"""In larger sites the hosts file has the node itself alone: the others are known to the head's
DNS."""
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


def fqdn(name: str, network: Mapping[str, Any] | None) -> str:
    """A node's full name, as far as it has one."""
    domain = (network or {}).get("domain")
    return f"{name}.{domain}" if domain and "." not in name else name


def names_of(name: str, network: Mapping[str, Any] | None) -> list[str]:
    """What a node is called, its full name first."""
    return list(dict.fromkeys((fqdn(name, network), name, name.partition(".")[0])))


def hosts(lines: Iterable[tuple[str, Sequence[str]]]) -> bytes:
    """A hosts file."""
    own = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "".join(
        f"{line}\n" for line in (*own, *(f"{ip} {' '.join(names)}" for ip, names in lines))
    ).encode()


def machine_id(node: str) -> str:
    """A node's machine-id (machine-id(5)): 32 hex digits, the same in each of its boots and of
    nobody else."""
    return hashlib.blake2b(f"layercake machine-id\n{node}".encode(), digest_size=16).hexdigest()


def given(
    node: Node,
    network: Mapping[str, Any] | None,
    others: Iterable[tuple[str, Sequence[str]]],
    host_key: tuple[str, str],
    authorized: Sequence[str],
) -> list[Entry]:
    """The files. `others` are lines of the hosts file beside the node's own, `host_key` is the
    private and the public one, ("", "") if there is none yet."""
    own = [(node.ip, names_of(node.name, network))]
    found = [
        Entry((ALL,), "/etc/hostname", f"{node.name}\n".encode()),
        Entry((ALL,), "/etc/machine-id", f"{machine_id(node.id)}\n".encode(), mode="0444"),
        Entry(
            (ALL,),
            "/etc/hosts",
            hosts([*own, *(line for line in others if line[0] != node.ip)]),
            beside=True,
            of_site=True,
        ),
    ]
    if host_key[0]:
        found += [
            Entry(
                (ALL,), HOST_KEY, host_key[0].encode(), mode="0600", within="/etc/ssh", secret=True
            ),
            Entry((ALL,), f"{HOST_KEY}.pub", host_key[1].encode(), within="/etc/ssh"),
        ]
    if authorized:
        found.append(
            Entry(
                (ALL,),
                "/root/.ssh/authorized_keys",
                "".join(f"{key}\n" for key in authorized).encode(),
                mode="0600",
                directory="0700",
                on_change="write",
            )
        )
    return found


def facts(node: Node, network: Mapping[str, Any] | None, authorized: Sequence[str]) -> Entry:
    """What the metadata service says of a node (minos.agent.metadata.answers)."""
    said = {
        "instance-id": node.id,
        "hostname": fqdn(node.name, network),
        "local-hostname": node.name,
        "mac": next(iter(node.macs), ""),
        "local-ipv4" if ":" not in node.ip else "ipv6": node.ip,
        "network": (network or {}).get("name", ""),
        "public-keys": list(authorized),
    }
    return Entry((METADATA,), "/facts.json", json.dumps(said).encode())


def known_host(names: Sequence[str], ip: str, public: str) -> str:
    """A line of known_hosts (sshd(8))."""
    where = [*names, str(ipaddress.ip_address(ip))]
    return f"{','.join(dict.fromkeys(where))} {public}"


def site(rows: Sequence[tuple[str, str, str, tuple[str, ...]]]) -> tuple[str, dict[str, Any]]:
    """A mark of all nodes, and what templates know of them. 10,000 take 40 ms: on a thread, once
    for an inventory."""
    nodes = [
        {"name": name, "fqdn": fqdn, "ip": ip, "groups": list(groups)}
        for name, fqdn, ip, groups in sorted(rows)
    ]
    groups = grouped((group, name) for name, _, _, its in sorted(rows) for group in its)
    facts = {"nodes": nodes, "groups": groups}
    return hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=12).hexdigest(), facts
