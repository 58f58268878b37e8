"""The head's addresses that containers are kept from, where its API listens on more than one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from imageapi.node.container.egress import HeadPorts, program
from layercake.head.addresses import reached_at

SETUP = """
set -e
ip link set lo up
ip link add one type veth peer name two
ip addr add 10.97.0.1/24 dev one
ip addr add 10.98.0.1/24 dev one
ip addr add fd97::1/64 dev one nodad
ip link set two up
ip link set one up
"""


@pytest.mark.parametrize(
    ("listen", "reached"),
    [
        ("10.97.0.9", {"10.97.0.9"}),
        ("0.0.0.0", {"10.97.0.1", "10.98.0.1"}),
        ("::", {"10.97.0.1", "10.98.0.1", "fd97::1"}),
        ("localhost", {"127.0.0.1"}),
        ("no-such-name.invalid", set()),
    ],
    ids=["one", "all-of-ipv4", "all", "name", "name-of-nobody"],
)
def test_where_a_server_is_reached(listen: str, reached: set[str]) -> None:
    work = (
        "import json, sys; from layercake.head.addresses import reached_at; "
        "print(json.dumps(reached_at(sys.argv[1])))"
    )
    script = f'{SETUP}exec "$0" -c "$1" "$2"'
    argv = ["unshare", "-n", "sh", "-c", script, sys.executable, work, listen]
    said = subprocess.run(argv, capture_output=True, check=True)
    found = {address for address in json.loads(said.stdout) if not address.startswith("fe80")}
    assert found - {"::1"} == reached


def test_an_address_is_not_looked_up() -> None:
    assert reached_at("fd97::0001") == ["fd97::1"]


@pytest.mark.parametrize("listen", ["fe80::97:1%lo", "a-name"])
def test_of_a_link_is_what_nodes_can_use(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of this machine lead to such addresses (nss-myhostname(8))."""
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::97:1%lo", 0, 0, 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    addresses = reached_at(listen)
    assert addresses == ["fe80::97:1"] and program(HeadPorts(tuple(addresses), (443,)))
