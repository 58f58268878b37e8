"""The address that floats: the head that leads has it while its lease lasts, and the neighbours
send to whoever has it; settings and inventories in which somebody else has it are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.base.clock import boottime
from layercake.base.datagrams import free_bind
from layercake.base.lease import Lease
from layercake.base.tcp_listener import bound_sockets
from layercake.features.heads.floating import conflicts
from layercake.fleet.site_heads import SiteHead
from layercake.head import settings, site_settings
from layercake.head.settings import Settings
from layercake.heads.floating import interface, keeper
from layercake.heads.floating.keeper import FloatingAddresses
from layercake.heads.leadership import MARGIN_S, TTL_S
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from layercake.moduleapi.network import HeadAddress, Network
from powerman.module import MODULE as POWER_MODULE
from pxe.dns_settings import DnsSettings
from tests.support import collectors
from tests.support.site import boot_settings

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 20.0
FLOATING = ("10.98.0.9/24", "fd98::9/64")
BRIDGE, CLIENT = "bridge", "client"


def until(what: Callable[[], Any], why: str) -> Any:
    """Waits for what must be seen; what it is."""
    end = time.monotonic() + patience(LIMIT_S)
    while not (found := what()):
        assert time.monotonic() < end, f"not seen: {why}"
        time.sleep(0.02)
    return found


class Machines:
    """Two heads and a neighbour, each in a network namespace, on one Ethernet."""

    def __init__(self, directory: Path) -> None:
        self._prefix = f"float{os.getpid()}-"
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leases: dict[str, Lease] = {}

    def ip(self, name: str, *words: str) -> str:
        return subprocess.run(
            ["ip", "-n", self._prefix + name, *words], check=True, capture_output=True, text=True
        ).stdout

    def up(self) -> None:
        for name in (BRIDGE, "head1", "head2", CLIENT):
            subprocess.run(["ip", "netns", "add", self._prefix + name], check=True)
            self.ip(name, "link", "set", "lo", "up")
        self.ip(BRIDGE, "link", "add", "br0", "up", "type", "bridge")
        for number, name in enumerate(("head1", "head2", CLIENT), 1):
            peer = ("peer", "name", "lan0", "netns", self._prefix + name)
            self.ip(BRIDGE, "link", "add", f"port{number}", "type", "veth", *peer)
            self.ip(BRIDGE, "link", "set", f"port{number}", "master", "br0", "up")
            self.ip(name, "link", "set", "lan0", "up")
            self.ip(name, "addr", "add", f"10.98.0.{number}/24", "dev", "lan0")
            self.ip(name, "addr", "add", f"fd98::{number}/64", "dev", "lan0", "nodad")

    def down(self) -> None:
        for name in list(self._processes):
            self.end(name, signal.SIGKILL)
        for name in (BRIDGE, "head1", "head2", CLIENT):
            subprocess.run(["ip", "netns", "del", self._prefix + name], check=False)

    def start(self, name: str) -> None:
        """Starts the part of a head that keeps the addresses; it does not lead yet."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        self._leases[name] = Lease(directory, write=True)
        inside = ["ip", "netns", "exec", self._prefix + name, sys.executable]
        holder = ["-m", "tests.support.address_holder", str(directory), "lan0"]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'vm-testbed'}"}
        self._processes[name] = subprocess.Popen([*inside, *holder, *FLOATING], cwd=ROOT, env=env)

    def send(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(patience(LIMIT_S))

    def renew(self, name: str) -> float:
        """Renews the lease of a head as one that leads does; when it ends."""
        ends = boottime() + TTL_S
        self._leases[name].set(0.0, ends - MARGIN_S)
        return ends

    def has(self, name: str) -> set[str]:
        """Which of the floating addresses a head has."""
        found = {
            info["local"]
            for link in json.loads(self.ip(name, "-j", "addr", "show", "dev", "lan0"))
            for info in link["addr_info"]
        }
        return found & {word.split("/")[0] for word in FLOATING}

    def has_all(self, name: str) -> bool:
        """Whether it has them, its lease being renewed."""
        self.renew(name)
        return len(self.has(name)) == len(FLOATING)

    def mac(self, name: str) -> str:
        (link,) = json.loads(self.ip(name, "-j", "link", "show", "dev", "lan0"))
        return str(link["address"])

    def reaches(self) -> None:
        """The neighbour sends to each address, and gets an answer."""
        for word in FLOATING:
            address = word.split("/")[0]
            inside = ["ip", "netns", "exec", self._prefix + CLIENT, sys.executable, "-c"]
            program = (
                "import socket, sys\n"
                "family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
                "sock = socket.socket(family, socket.SOCK_STREAM); sock.settimeout(5)\n"
                "sys.exit(sock.connect_ex((sys.argv[1], 9)) != 111)\n"
            )
            subprocess.run([*inside, program, address], check=True)

    def neighbour(self) -> dict[str, str]:
        """The cards that the neighbour sends to, by the floating addresses."""
        entries = json.loads(self.ip(CLIENT, "-j", "neigh", "show", "dev", "lan0"))
        wanted = {word.split("/")[0] for word in FLOATING}
        return {one["dst"]: one.get("lladdr", "") for one in entries if one["dst"] in wanted}

    def sends_to(self, name: str) -> bool:
        """Whether the neighbour sends to a head, whose lease is renewed; it is not asked to."""
        self.renew(name)
        return self.neighbour() == {word.split("/")[0]: self.mac(name) for word in FLOATING}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        made.up()
        made.start("head1")
        made.start("head2")
        until(lambda: made.has_all("head1"), "head1 has the addresses")
        made.reaches()
        assert made.sends_to("head1")
        yield made
    finally:
        made.down()


@pytest.mark.root
@pytest.mark.parametrize(
    "number", [signal.SIGSTOP, signal.SIGKILL, 0], ids=["stopped", "killed", "store-away"]
)
def test_it_is_given_up_before_the_lease_ends_and_the_next_head_has_it(
    machines: Machines, number: int
) -> None:
    ends = machines.renew("head1")
    until(lambda: machines.has("head1"), "head1 has renewed them")
    if number:
        machines.send("head1", number)
    until(lambda: not machines.has("head1"), "head1 has none any more")
    assert boottime() < ends
    until(lambda: machines.has_all("head2"), "head2 has the addresses")
    until(lambda: machines.sends_to("head2"), "the neighbour sends to head2")
    machines.reaches()
    if number == signal.SIGSTOP:
        machines.send("head1", signal.SIGCONT)
        machines.renew("head2")
        machines.end("head1")
    assert not machines.has("head1") and machines.has_all("head2")


@pytest.mark.root
def test_who_hands_over_has_it_no_more_and_who_begins_takes_away_what_was_left(
    machines: Machines,
) -> None:
    machines.end("head1")
    assert not machines.has("head1")
    for word in FLOATING:
        machines.ip("head1", "addr", "add", word, "dev", "lan0")
    assert machines.has("head1")
    machines.start("head1")
    until(lambda: not machines.has("head1"), "head1 follows, and has none")


def _loaded(directory: Path, *lines: str) -> Settings:
    """Settings of a head at 10.98.0.1/24 and fd98::1/64, with these lines besides, from line 5."""
    own = (
        "interface: eth0",
        "address: 10.98.0.1",
        "gateway: 10.98.0.254",
        "more_networks: {six: {interface: eth1, address: fd98::1, prefix: 64}}",
    )
    (directory / settings.FILE_NAME).write_text("\n".join([*own, *lines]) + "\n")
    return settings.load(directory)


def test_they_are_the_sites_and_in_certificates_and_on_the_interface_of_their_network(
    tmp_path: Path,
) -> None:
    found = _loaded(tmp_path, "floating_addresses: [fd98::9, 10.98.0.9]")
    assert [(one.interface, str(one)) for one in found.floating] == [
        ("eth0", "10.98.0.9/24"),
        ("eth1", "fd98::9/64"),
    ]
    assert {"10.98.0.9", "fd98::9"} <= set(found.certificate_names)
    assert b"10.98.0.9" in site_settings.site_part(found)
    settings.save(tmp_path, found)
    assert settings.load(tmp_path).floating_addresses == found.floating_addresses


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("10.99.0.9", "is no host address of a network that this head is in"),
        ("10.98.0.255", "is no host address of a network that this head is in"),
        ("10.98.0.1", "is this head's own"),
        ("fd98::1", "is this head's own"),
        ("10.98.0.254", "is the gateway"),
        ("10.98.0.8, 10.98.0.9", "10.98.0.9 is the second one in 10.98.0.0/24"),
        ("ff02::1", "'ff02::1' cannot be a node's address"),
        ("head.example.org", "is not an IPv4 address"),
    ],
    ids=["outside", "broadcast", "own", "own-ipv6", "gateway", "second", "multicast", "name"],
)
def test_a_setting_that_no_head_can_have_is_refused_with_its_line(
    tmp_path: Path, listed: str, why: str
) -> None:
    with pytest.raises(InventoryErrors) as caught:
        _loaded(tmp_path, f"floating_addresses: [{listed}]")
    (problem,) = caught.value.problems
    assert problem.line == 5 and why in problem.message


@pytest.mark.parametrize(
    ("inventory", "line", "why"),
    [
        (
            "nodes:\n  n1: {mac: '02:00:00:00:00:01', ip: 10.98.0.9}\n",
            2,
            "is an address of the head",
        ),
        (
            "nodes:\n  n1: {mac: '02:00:00:00:00:01', ip: 10.98.0.1}\n",
            2,
            "is an address of the head",
        ),
        (
            "nodes:\n  n[1-9]: {mac: '02:00:00:00:00:01+', ip: 10.98.0.2+}\n",
            2,
            "node n8: 10.98.0.9 is an address of the head",
        ),
        (
            "networks:\n  a: {subnet: 10.98.0.0/24, guests: [10.98.0.5-10.98.0.10]}\n",
            2,
            "the head's address 10.98.0.9 is among those for guests",
        ),
        (
            "networks:\n  a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, head: 10.98.0.9}\n",
            2,
            "10.98.0.9 is no address of the head",
        ),
    ],
    ids=["node", "own-address", "range", "guests", "head-of-network"],
)
def test_an_inventory_in_which_somebody_else_has_it_is_refused_with_its_line(
    tmp_path: Path, inventory: str, line: int, why: str
) -> None:
    heads = _loaded(tmp_path, "floating_addresses: [10.98.0.9]").beside_nodes
    with pytest.raises(InventoryErrors) as caught:
        load(inventory, "rack.yaml", parts={}, heads=heads)
    (problem,) = caught.value.problems
    assert (problem.line, why in problem.message) == (line, True), problem.message


def test_what_the_inventory_has_already_is_not_taken_from_it_and_is_said() -> None:
    floating = [
        HeadAddress(interface="eth0", address=f"10.98.0.{number}") for number in (2, 3, 4, 5, 6, 9)
    ]
    assert POWER_MODULE.part is not None
    parts = {"power": POWER_MODULE.part}
    text = """
        nodes:
          n1: {mac: '02:00:00:00:00:01', ip: 10.98.0.2,
               bmc: {driver: ipmi, address: 10.98.0.3, username: u, password: {file: /p}}}
    """
    nodes = load(text, parts=parts).nodes.values()
    network = Network(subnet="10.98.0.0/24", gateway="10.98.0.4", guests=("10.98.0.5-10.98.0.5",))
    head = SiteHead(
        name="head2",
        addresses=(HeadAddress(interface="eth0", address="10.98.0.6"),),
        api_port=1,
        sync_port=1,
    )
    found = conflicts(floating, nodes, parts, {"a": network}, [head])
    assert found == {
        "10.98.0.2": "node n1 has it",
        "10.98.0.3": "node n1 has it",
        "10.98.0.4": "it is the gateway of network a",
        "10.98.0.5": "it is for guests of network a",
        "10.98.0.6": "it is the own address of head head2",
    }
    held = FloatingAddresses(floating, lambda: 0.0)
    held.refused = {"10.98.0.2": found["10.98.0.2"]}
    assert held.troubles == [
        "cannot use 10.98.0.2, one of floating_addresses in config.yaml: node n1 has it"
    ]


def test_it_stays_while_a_renewal_of_the_lease_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    here: dict[str, int] = {}
    now = 100.0
    monkeypatch.setattr(interface, "renew", lambda one, s: here.update({one.address: s}))
    monkeypatch.setattr(interface, "announce", lambda one: None)
    monkeypatch.setattr(interface, "remove", lambda address: here.pop(address, None) is not None)
    monkeypatch.setattr(keeper, "boottime", lambda: now)
    ends = 103.4
    held = FloatingAddresses([HeadAddress(interface="eth0", address="10.98.0.9")], lambda: ends)
    for when, there in ((100.0, {"10.98.0.9": 3}), (102.9, {"10.98.0.9": 3}), (103.2, {})):
        now = when
        held.turn()
        assert here == there, f"{ends - when:.1f} s before the lease ends"
    ends = 107.0
    held.turn()
    assert here == {"10.98.0.9": 3}


async def test_what_looks_after_it_goes_on_and_says_what_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends: list[float] = []
    held = FloatingAddresses([HeadAddress(interface="eth0", address="10.98.0.9")], ends.pop)
    holding = asyncio.create_task(held.hold())
    why = "cannot look after the floating addresses: IndexError: pop from empty list"
    await collectors.until(lambda: held.troubles == [why])
    ends.extend([0.0] * 1000)
    await collectors.until(lambda: not held.troubles)
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert [one.getMessage() for one in caplog.records] == [why.partition(": ")[0]]


def test_nodes_are_told_of_it_first_as_a_server_of_names_and_time() -> None:
    own = boot_settings(boot={"dns": DnsSettings(serve=True)})
    floating = (HeadAddress(interface=own.interface, address="10.99.0.9", prefix=own.prefix),)
    told = dataclasses.replace(own, floating=floating, ntp_port=123)
    assert told.told_dns == told.told_ntp == ("10.99.0.9", own.address)


@pytest.mark.parametrize("address", ["192.0.2.9", "2001:db8::9"])
def test_servers_listen_on_an_address_that_comes_later(address: str) -> None:
    with pytest.raises(OSError, match="assign"):
        bound_sockets([address], 0)
    for sock in bound_sockets([address], 0, [address]):
        assert sock.getsockname()[0] == address
        sock.close()
    one = HeadAddress(interface="br0", address=address)
    told = dataclasses.replace(boot_settings(), floating=(one,))
    assert told.at(one).bind_options == (free_bind(address),) and not told.bind_options
