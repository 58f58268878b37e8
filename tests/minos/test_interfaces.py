"""The node's interfaces: what is set and in which order, what others change, what waits, what
fails; and the real kernel."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.base.packets.netlink import attributes
from layercake.kraken.errors import OperationFailed
from layercake.kraken.events import EventKind, Severity
from minos.agent.network import wanted as wanted_module
from minos.agent.network import wire
from minos.agent.network.kernel import Kernel
from minos.agent.network.late import RECORD
from minos.agent.network.manager import RETRY_S, InterfaceManager
from minos.agent.network.modules import need
from minos.agent.network.reporter import EVERY_S, GRACE_S
from minos.agent.network.steps import Verb
from minos.agent.network.wanted import Boot
from minos.events import LEG_DOWN, LEG_UP, NETWORK, NETWORK_CHANGED, NETWORK_FAILED, NETWORK_SET
from minos.identity import parse_identity
from tests.support.clock import FakeClock
from tests.support.fakekernel import FakeKernel
from tests.support.in_netns import in_netns

CARDS = {"eth0": "52:54:00:00:00:10", "eth1": "52:54:00:00:00:11", "eth2": "52:54:00:00:00:12"}
BOOT = Boot(CARDS["eth0"], "10.0.2.15/24", 0, (("0.0.0.0/0", "10.0.2.2"),), "10.0.2.2")
NAMED = {name: {"mac": mac} for name, mac in CARDS.items()}
BOND = {
    **NAMED,
    "bond0": {
        "bond": {"mode": "active-backup", "legs": ["eth1", "eth0"], "primary": "eth0"},
        "mtu": 9000,
    },
    "storage": {
        "vlan": {"id": 20, "of": "bond0"},
        "mtu": 8000,
        "addresses": ["10.20.0.5/24", "fd20::5/64"],
        "routes": {"10.30.0.0/16": "10.20.0.1", "fd30::/32": "fd20::1"},
    },
}


class Node:
    """A keeper over a kernel, with what it tells."""

    def __init__(self, run: Path, kernel: Any, *, live: bool = False, boot: Boot = BOOT) -> None:
        self.run, self.kernel, self.clock = run, kernel, FakeClock()
        self.events: list[tuple[EventKind, str, dict[str, Any]]] = []
        self.reachable, self.fetched = True, list[str]()
        self._live, self._boot = live, boot
        self.keeper = self._made()

    def _made(self) -> InterfaceManager:
        return InterfaceManager(
            self.run / RECORD,
            self._boot,
            self._event,
            self.kernel,
            fetch=self.fetched.append,
            reach=lambda seconds: self.reachable,
            clock=self.clock,
            live=self._live,
        )

    def restart(self) -> None:
        """Another agent."""
        self.keeper = self._made()

    def _event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        self.events.append((kind, text, data))

    def want(self, interfaces: dict[str, Any]) -> None:
        self.keeper.set_desired(interfaces)
        self.keeper.turn()

    def later(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.keeper.turn()

    def told(self, kind: EventKind) -> list[str]:
        return [text for found, text, _ in self.events if found is kind]

    def view(self, name: str) -> dict[str, Any]:
        last = [data for kind, _, data in self.events if kind is NETWORK][-1]
        return dict(next(view for view in last["interfaces"] if view["name"] == name))


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel had them: what loads them has tests of its own."""
    monkeypatch.setattr("minos.agent.network.manager.need", lambda verb, fetch: False)


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel(CARDS)


@pytest.fixture
def node(tmp_path: Path, kernel: FakeKernel) -> Node:
    return Node(tmp_path, kernel)


def test_a_bond_with_the_boot_card_and_a_vlan_are_set_in_order(
    node: Node, kernel: FakeKernel
) -> None:
    node.want(BOND)
    assert kernel.links["eth0"].master == kernel.links["eth1"].master == kernel.links["bond0"].index
    bond = kernel.links["bond0"]
    assert (bond.mtu, bond.up, bond.mac, bond.primary) == (
        9000,
        True,
        CARDS["eth0"],
        kernel.links["eth0"].index,
    )
    assert kernel.addresses["bond0"] == ["10.0.2.15/24"] and kernel.addresses["eth0"] == [], (
        "the boot's address has moved"
    )
    assert ("bond0", "0.0.0.0/0", "10.0.2.2") in kernel.routes
    assert kernel.links["storage"].mtu == 8000 and sorted(kernel.addresses["storage"]) == [
        "10.20.0.5/24",
        "fd20::5/64",
    ]
    assert {
        ("storage", "10.30.0.0/16", "10.20.0.1"),
        ("storage", "fd30::/32", "fd20::1"),
    } <= kernel.routes
    order = [(step.verb, step.on) for step in kernel.done]
    assert order.index((Verb.UP, "bond0")) < order.index((Verb.DOWN, "eth0")), (
        "the bond waits for the address, not the other way"
    )
    assert order.index((Verb.ENSLAVE, "eth0")) < order.index((Verb.ENSLAVE, "eth1")), (
        "the boot card goes first"
    )
    assert kernel.links["eth2"].up and node.keeper.settled.is_set()
    assert node.told(NETWORK_SET) == [
        "the interfaces are as the inventory has them: bond0, eth0, eth1, eth2, storage"
    ]
    assert node.view("bond0")["legs"] == [
        {"name": "eth1", "state": "up"},
        {"name": "eth0", "state": "up"},
    ]
    count = len(kernel.done)
    node.later()
    assert len(kernel.done) == count, "nothing is done twice"
    assert not node.told(NETWORK_CHANGED) and not node.told(NETWORK_FAILED)


def test_cards_are_called_as_the_inventory_calls_them_also_crosswise(
    node: Node, kernel: FakeKernel
) -> None:
    node.want(
        {
            "eth2": {"mac": CARDS["eth1"], "addresses": ["10.5.0.1/24"]},
            "eth1": {"mac": CARDS["eth2"]},
            "lan0": {"mac": CARDS["eth0"]},
        }
    )
    assert {name: link.mac for name, link in kernel.links.items()} == {
        "eth2": CARDS["eth1"],
        "eth1": CARDS["eth2"],
        "lan0": CARDS["eth0"],
    }
    assert (
        kernel.addresses["lan0"] == ["10.0.2.15/24"]
        and ("lan0", "0.0.0.0/0", "10.0.2.2") in kernel.routes
    )
    assert kernel.addresses["eth2"] == ["10.5.0.1/24"]


def test_what_the_inventory_does_not_name_is_left_alone(node: Node, kernel: FakeKernel) -> None:
    kernel.addresses["eth2"] = ["192.168.7.7/24"]
    node.want({"eth1": {"mac": CARDS["eth1"], "mtu": 1400}})
    assert [(step.verb, step.on) for step in kernel.done] == [(Verb.MTU, "eth1"), (Verb.UP, "eth1")]
    kernel.addresses["eth1"] = [
        "192.168.8.8/32"
    ]  # as of a program that moves an address between nodes
    node.later()
    assert kernel.addresses["eth1"] == ["192.168.8.8/32"] and not node.told(NETWORK_CHANGED)


def test_what_others_change_is_put_back_and_told_once_a_minute(
    node: Node, kernel: FakeKernel
) -> None:
    node.want(BOND)
    kernel.change("bond0", mtu=1500)
    kernel.addresses["storage"].remove("10.20.0.5/24")
    node.later()
    assert kernel.links["bond0"].mtu == 9000 and "10.20.0.5/24" in kernel.addresses["storage"]
    assert sorted(node.told(NETWORK_CHANGED)) == [
        "bond0 was changed by others, and was set again: mtu 9000 -> 1500",
        "storage was changed by others, and was set again: 10.20.0.5/24 is gone",
    ]
    (data,) = [
        data
        for kind, _, data in node.events
        if kind is NETWORK_CHANGED and data["interface"] == "bond0"
    ]
    assert (data["was"]["mtu"], data["found"]["mtu"]) == (9000, 1500)
    for _ in range(3):
        kernel.change("bond0", mtu=1500)
        node.later()
        assert kernel.links["bond0"].mtu == 9000, "it is put back each time"
    assert len(node.told(NETWORK_CHANGED)) == 2
    node.later(EVERY_S)
    assert node.told(NETWORK_CHANGED)[2:] == [
        "bond0 was changed by others, 3 times, and was set again: mtu 9000 -> 1500"
    ]


def test_a_bond_that_others_take_away_is_made_again(node: Node, kernel: FakeKernel) -> None:
    node.want(BOND)
    kernel.gone("bond0")
    node.later()
    assert kernel.addresses["bond0"] == ["10.0.2.15/24"] and "storage" in kernel.links
    assert ("bond0", "0.0.0.0/0", "10.0.2.2") in kernel.routes and len(
        node.told(NETWORK_CHANGED)
    ) == 4


def test_another_agent_sees_what_was_changed_while_there_was_none(
    node: Node, kernel: FakeKernel
) -> None:
    node.want(BOND)
    kernel.change("storage", up=False)
    node.restart()
    node.want(BOND)
    assert node.told(NETWORK_CHANGED) == [
        "storage was changed by others, and was set again: state up -> down"
    ]
    assert node.keeper.settled.is_set() and len(node.told(NETWORK_SET)) == 1


def test_changes_go_live_and_what_is_wanted_no_longer_goes(node: Node, kernel: FakeKernel) -> None:
    node.want(BOND)
    more = {
        **BOND,
        "storage": {"vlan": {"id": 20, "of": "bond0"}, "addresses": ["fd20::5/64"]},
        "mgmt": {"vlan": {"id": 30, "of": "bond0"}, "addresses": ["10.30.0.5/24"]},
    }
    node.want(more)
    assert kernel.addresses["storage"] == ["fd20::5/64"] and kernel.addresses["mgmt"] == [
        "10.30.0.5/24"
    ]
    assert [to for name, to, _ in kernel.routes if name == "storage"] == []
    node.want({name: one for name, one in more.items() if name != "mgmt"})
    assert "mgmt" not in kernel.links and kernel.addresses["bond0"] == ["10.0.2.15/24"]
    assert not node.told(NETWORK_CHANGED) and len(node.told(NETWORK_SET)) == 3


def test_what_would_take_the_network_from_images_waits_for_a_boot(
    node: Node, kernel: FakeKernel
) -> None:
    node.want(NAMED)
    node.want(BOND)
    assert "bond0" not in kernel.links and kernel.addresses["eth0"] == ["10.0.2.15/24"]
    (text,) = node.told(NETWORK_FAILED)
    assert text.startswith("bond0: waits for the next boot: the address that the node booted by")
    node.later()
    assert node.view("bond0")["trouble"].startswith("waits")
    node.want(BOND)
    assert len(node.told(NETWORK_FAILED)) == 1
    node.want(NAMED)
    node.later()
    assert [
        v["name"] for v in [d for k, _, d in node.events if k is NETWORK][-1]["interfaces"]
    ] == list(NAMED)


@pytest.mark.parametrize(
    "change",
    [
        {"bond0": {"bond": {"mode": "802.3ad", "legs": ["eth1", "eth0"]}}},
        {"storage": {"mac": CARDS["eth2"]}},
        {"lan": {"mac": CARDS["eth2"]}},
    ],
)
def test_modes_kinds_and_names_stay_while_the_node_is_up(
    node: Node, kernel: FakeKernel, change: dict[str, Any]
) -> None:
    node.want(BOND)
    before = dict(kernel.links)
    node.want({**{k: v for k, v in BOND.items() if k != "eth2"}, **change})
    assert kernel.links == before and len(node.told(NETWORK_FAILED)) == 1, node.events


def test_a_card_that_comes_late_is_waited_for_and_then_missed(
    node: Node, kernel: FakeKernel
) -> None:
    late = kernel.links.pop("eth1")
    node.want(BOND)
    assert not node.keeper.settled.is_set(), "the images wait"
    node.later(11)
    assert node.keeper.settled.is_set() and kernel.addresses["bond0"] == ["10.0.2.15/24"], (
        "all else is done"
    )
    assert set(node.told(NETWORK_FAILED)) == {
        "eth1: there is no card 52:54:00:00:00:11",
        "bond0: its leg eth1 is not there",
    }
    node.later(GRACE_S)
    assert node.told(LEG_DOWN) == ["eth1 of bond0: missing"]
    kernel.links["eth1"] = late
    node.later()
    assert kernel.links["eth1"].master == kernel.links["bond0"].index and node.told(LEG_UP) == [
        "eth1 of bond0 is up again"
    ]
    assert not node.told(NETWORK_CHANGED), "a card that comes is no change by others"


def test_legs_are_told_after_a_while_and_once(node: Node, kernel: FakeKernel) -> None:
    node.want(BOND)
    kernel.change("eth1", carrier=False, leg_up=False)
    node.later()
    kernel.change("eth1", carrier=True, leg_up=True)
    node.later(GRACE_S)
    assert not node.told(LEG_DOWN), "a moment is nothing"
    kernel.change("eth1", carrier=False, leg_up=False)
    node.later()
    node.later(GRACE_S)
    assert node.told(LEG_DOWN) == ["eth1 of bond0: no carrier"]
    node.restart()
    node.want(BOND)
    node.later(2 * GRACE_S)
    assert len(node.told(LEG_DOWN)) == 1, "the agent before has told it"
    kernel.change("eth1", carrier=True, leg_up=True)
    node.later()
    assert node.told(LEG_UP) == ["eth1 of bond0 is up again"]


def test_a_leg_without_a_partner_is_of_no_use(node: Node, kernel: FakeKernel) -> None:
    node.want(
        {
            **NAMED,
            "bond0": {"bond": {"mode": "802.3ad", "legs": ["eth1", "eth2"], "lacp_rate": "fast"}},
        }
    )
    assert kernel.links["bond0"].rate == 1
    kernel.change("eth2", leg_aggregator=2)
    node.later()
    node.later(GRACE_S)
    assert node.told(LEG_DOWN) == ["eth2 of bond0: no partner"]


def test_the_boot_card_goes_back_when_no_bond_can_be_made_of_it(
    node: Node, kernel: FakeKernel
) -> None:
    kernel.refuse = {Verb.ENSLAVE}
    node.want(BOND)
    assert kernel.links["eth0"].up and kernel.addresses["eth0"] == ["10.0.2.15/24"]
    assert ("eth0", "0.0.0.0/0", "10.0.2.2") in kernel.routes and node.keeper.settled.is_set()
    assert any(
        text.startswith("eth0: cannot make it a leg of bond0") for text in node.told(NETWORK_FAILED)
    )
    count = len(kernel.done)
    node.later(RETRY_S)
    assert not [step for step in kernel.done[count:] if step.on == "eth0"], (
        "it is not tried again while the node runs"
    )


@pytest.mark.parametrize("lacks", ["the kernel's", "the module"])
def test_the_boot_card_stays_when_there_can_be_no_bond(
    node: Node, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    def no_module(verb: Verb, fetch: object) -> bool:
        assert any(
            link.up and kernel.addresses.get(name) == ["10.0.2.15/24"]
            for name, link in kernel.links.items()
        )
        raise OperationFailed("there is no module")

    if lacks == "the module":
        monkeypatch.setattr("minos.agent.network.manager.need", no_module)
    else:
        kernel.refuse = {Verb.BOND}
    wanted = {
        **{k: v for k, v in BOND.items() if k != "eth0"},
        "lan0": {"mac": CARDS["eth0"]},
        "bond0": {"bond": {"mode": "active-backup", "legs": ["lan0", "eth1"]}},
    }
    node.want(wanted)
    assert kernel.links["lan0"].up and kernel.addresses["lan0"] == ["10.0.2.15/24"]
    assert ("lan0", "0.0.0.0/0", "10.0.2.2") in kernel.routes and node.keeper.settled.is_set()
    assert {text.partition(":")[0] for text in node.told(NETWORK_FAILED)} >= {
        "bond0",
        "lan0",
        "storage",
    }
    count = len(kernel.done)
    node.later(RETRY_S)
    assert not kernel.done[count:], "it is not tried again while the node runs"


def test_the_boot_card_goes_back_when_the_head_is_out_of_reach(
    node: Node, kernel: FakeKernel
) -> None:
    node.reachable = False
    node.want(BOND)
    assert kernel.links["eth0"].master == 0 and kernel.links["eth0"].up
    assert kernel.addresses["eth0"] == [
        "10.0.2.15/24"
    ] and "10.0.2.15/24" not in kernel.addresses.get("bond0", [])
    assert ("eth0", "0.0.0.0/0", "10.0.2.2") in kernel.routes and (
        "bond0",
        "0.0.0.0/0",
        "10.0.2.2",
    ) not in kernel.routes
    assert any("the head cannot be reached by bond0" in text for text in node.told(NETWORK_FAILED))


def test_what_fails_holds_up_nothing_else_and_is_tried_again(
    node: Node, kernel: FakeKernel
) -> None:
    kernel.refuse = {Verb.VLAN}
    node.want({**BOND, "eth2": {"mac": CARDS["eth2"], "addresses": ["10.5.0.1/24"]}})
    assert kernel.addresses["eth2"] == ["10.5.0.1/24"] and kernel.addresses["bond0"] == [
        "10.0.2.15/24"
    ]
    assert node.told(NETWORK_FAILED) == [
        "storage: cannot make the VLAN storage: Operation not permitted"
    ]
    kernel.refuse = set()
    node.later(RETRY_S)
    assert "storage" in kernel.links and not node.told(NETWORK_CHANGED)
    assert node.view("storage")["trouble"] == ""


def test_a_default_route_of_the_inventory_goes_first_and_the_head_stays_in_reach(
    tmp_path: Path, kernel: FakeKernel
) -> None:
    far = Boot(
        CARDS["eth0"],
        "10.0.2.15/24",
        1400,
        (("0.0.0.0/0", "10.0.2.2"), ("10.77.0.0/16", "10.0.2.3")),
        "10.99.0.1",
    )
    node = Node(tmp_path, kernel, boot=far)
    node.want(
        {
            "eth0": {"mac": CARDS["eth0"]},
            "eth1": {
                "mac": CARDS["eth1"],
                "addresses": ["10.5.0.1/24"],
                "routes": {"0.0.0.0/0": "10.5.0.254"},
            },
        }
    )
    assert kernel.routes == {
        ("eth0", "10.99.0.1/32", "10.0.2.2"),
        ("eth0", "10.77.0.0/16", "10.0.2.3"),
        ("eth1", "0.0.0.0/0", "10.5.0.254"),
    }
    assert kernel.links["eth0"].mtu == 1400, "the network's own"


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"a": 5},
        {"a": {}},
        {"a": {"mac": "x"}},
        {"a/b": {"mac": CARDS["eth1"]}},
        {"a": {"mac": CARDS["eth1"], "mtu": "9"}},
        {"a": {"mac": CARDS["eth1"], "addresses": ["10.0.0.1/99"]}},
        {"a": {"bond": {"mode": "x", "legs": []}}},
        {"a": {"vlan": {"id": 5000, "of": "b"}}},
        {"lo": {"mac": CARDS["eth1"]}},
        {"a": {"mac": CARDS["eth1"], "routes": {"x": "y"}}},
    ],
)
def test_what_is_not_as_agreed_is_told_and_changes_nothing(
    node: Node, kernel: FakeKernel, said: Any
) -> None:
    node.want(said)
    node.want(said)
    (text,) = node.told(NETWORK_FAILED)
    assert (
        text.startswith("cannot take the interfaces that are wanted")
        and not kernel.done
        and node.keeper.settled.is_set()
    )


def test_a_damaged_record_is_no_record(node: Node) -> None:
    (node.run / RECORD).write_text("{")
    node.restart()
    node.want(BOND)
    assert node.told(NETWORK_SET)


def test_the_boot_is_that_of_the_command_line() -> None:
    line = (
        "layercake.mac=52:54:00:00:00:10 layercake.ip=10.0.2.15/24 layercake.gateway=10.0.2.2 "
        "layercake.mtu=1400 "
        "layercake.routes=10.130.0.0/15@10.0.2.254 layercake.head=https://10.99.0.1:8443"
    )
    assert wanted_module.boot_of(parse_identity(line)) == Boot(
        "52:54:00:00:00:10",
        "10.0.2.15/24",
        1400,
        (("10.130.0.0/15", "10.0.2.254"), ("0.0.0.0/0", "10.0.2.2")),
        "10.99.0.1",
    )


def test_modules_are_fetched_when_neither_kernel_nor_minos_has_them(tmp_path: Path) -> None:
    asked: list[str] = []
    (tmp_path / "bonding").mkdir()
    assert (
        need(Verb.UP, asked.append, tmp_path) is False
        and need(Verb.BOND, asked.append, tmp_path) is False
    )
    assert need(Verb.VLAN, asked.append, tmp_path, "/nonexistent") is True and asked == [
        "rtnl-link-vlan"
    ]

    def refuses(alias: str) -> None:
        raise OperationFailed("the head has nothing for it")

    with pytest.raises(
        OperationFailed,
        match="no module 8021q, and it cannot be had from the head: the head has nothing",
    ):
        need(Verb.VLAN, refuses, tmp_path, "/nonexistent")


# -- the real kernel, with what that of the test's machine has: no bonds, no VLANs


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"mn{secrets.token_hex(3)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for at, card in enumerate(CARDS):
            link = [
                "link",
                "add",
                card,
                "address",
                CARDS[card],
                "type",
                "veth",
                "peer",
                "name",
                f"peer{at}",
            ]
            subprocess.run(["ip", "-n", name, *link], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", f"peer{at}", "up"], check=True)
        for words in (
            "address add 10.0.2.15/24 dev eth0",
            "link set eth0 up",
            "route add default via 10.0.2.2",
        ):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
def test_the_real_kernel_is_read_and_set(tmp_path: Path, namespace: str) -> None:
    def ip(*words: str) -> str:
        return subprocess.run(
            ["ip", "-n", namespace, *words], capture_output=True, text=True, check=True
        ).stdout

    async def body() -> None:
        with contextlib.closing(Kernel()) as kernel:
            steps(kernel)

    def steps(kernel: Kernel) -> None:
        node = Node(tmp_path, kernel)
        node.want(
            {
                "lan0": {"mac": CARDS["eth0"]},
                "lan1": {
                    "mac": CARDS["eth1"],
                    "mtu": 1400,
                    "addresses": ["10.20.0.5/24", "fd20::5/64"],
                    "routes": {
                        "10.30.0.0/16": "10.20.0.1",
                        "fd30::/32": "fd20::1",
                        "::/0": "fd20::2",
                    },
                },
            }
        )
        assert not node.told(NETWORK_FAILED) and node.told(NETWORK_SET)
        assert "10.0.2.15/24" in ip(
            "address", "show", "lan0"
        ) and "default via 10.0.2.2 dev lan0" in ip("route")
        shown = ip("address", "show", "lan1")
        assert "mtu 1400" in shown and "inet 10.20.0.5/24" in shown and "inet6 fd20::5/64" in shown
        assert "10.30.0.0/16 via 10.20.0.1 dev lan1" in ip("route")
        assert "fd30::/32 via fd20::1 dev lan1" in ip(
            "-6", "route"
        ) and "default via fd20::2 dev lan1" in ip("-6", "route")
        kernel.drain()
        ip("link", "set", "lan1", "down", "mtu", "1300")
        assert kernel.listener.recv(1 << 16), "the kernel says that something has changed"
        kernel.drain()
        node.later()
        assert "mtu 1400" in ip("link", "show", "lan1") and "fd20::5/64" in ip(
            "address", "show", "lan1"
        )
        assert (
            "10.30.0.0/16 via 10.20.0.1 dev lan1" in ip("route")
            and len(node.told(NETWORK_CHANGED)) == 1
        )
        node.want(
            {
                "lan0": {"mac": CARDS["eth0"]},
                "lan1": {"mac": CARDS["eth1"], "addresses": ["10.20.0.6/24"]},
            }
        )
        assert (
            "10.20.0.5" not in ip("address")
            and "fd20::5" not in ip("address")
            and "10.20.0.6/24" in ip("address")
        )
        assert "10.30" not in ip("route") and "default via 10.0.2.2 dev lan0" in ip("route")
        node.want({"lan1": {"mac": CARDS["eth1"], "routes": {"10.50.0.0/16": "10.99.9.9"}}})
        assert node.told(NETWORK_FAILED)[0].startswith(
            "lan1: cannot route by it 10.50.0.0/16 via 10.99.9.9: "
        )

    in_netns(namespace, body)


def test_what_is_cut_off_or_garbled_is_no_more_than_that() -> None:
    link = wire.link_of(bytes(16) + b"\x05\x00\x03")
    assert (link.name, link.mtu) == ("", 0)
    assert (
        attributes(b"\xff\xff\x01\x00") == {}
        and wire.address_of(bytes(8)) is None
        and wire.route_of(bytes(12)) is None
    )
