"""A machine with three cards: a bond with the boot card, VLANs, IPv6, a cable that is pulled, and
people who change things."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.events import STARTED
from imageapi.store.store import ImageStore
from minos.build.drivers import Drivers
from minos.events import (
    LEG_DOWN,
    LEG_UP,
    NETWORK,
    NETWORK_CHANGED,
    NETWORK_FAILED,
    NETWORK_SET,
    NODE_API,
)
from tests.support.fake_head import UP, FakeHead
from tests.support.minosvm import Built, FileService, Machine, document, run, start

pytestmark = pytest.mark.vm

MACS = ("52:54:00:00:01:00", "52:54:00:00:01:01", "52:54:00:00:01:02")
INTERFACES: dict[str, Any] = {
    "lan0": {"mac": MACS[0]},
    "lan1": {"mac": MACS[1]},
    "lan2": {"mac": MACS[2], "addresses": ["fd02::5/64"], "mtu": 1280},
    "bond0": {
        "bond": {"mode": "active-backup", "legs": ["lan0", "lan1"], "primary": "lan0"},
        "mtu": 1600,
    },
    "v20": {
        "vlan": {"id": 20, "of": "bond0"},
        "mtu": 1600,
        "addresses": ["10.20.0.5/24", "fd20::5/64"],
        "routes": {"10.30.0.0/16": "10.20.0.1", "fd30::/32": "fd20::1"},
    },
}
LIVE: dict[str, Any] = {
    **INTERFACES,
    "v30": {"vlan": {"id": 30, "of": "lan2"}, "addresses": ["10.31.0.5/24"]},
}


def told(head: FakeHead, kind: Any, about: str = "") -> list[dict[str, Any]]:
    return [event for event in head.events if event["kind"] == kind.name and about in event["text"]]


def view(head: FakeHead, name: str) -> dict[str, Any]:
    newest = told(head, NETWORK)
    return (
        next((dict(one) for one in newest[-1]["data"]["interfaces"] if one["name"] == name), {})
        if newest
        else {}
    )


def test_interfaces_from_the_boot_on(
    tmp_path: Path, minos: Built, files: tuple[ImageStore, FileService]
) -> None:
    head = FakeHead(tmp_path / "pki", str(uuid.uuid4()), public="10.0.2.2", hello_s=0.5)
    drivers = Drivers(minos.modules, minos.release, ())
    head.drivers = lambda asked: (
        200,
        drivers.wanted(
            asked["release"],
            [device for device in asked["devices"] if device.startswith("rtnl-link-")],
        ),
    )
    head.files = {
        f"modules/{name}": drivers.module(name)
        for name in ("bonding", "tls", "8021q", "garp", "mrp", "stp", "llc")
    }
    image = document(
        *files, build_plain_image(tmp_path / "plain.squashfs", "plain-marker"), "plain", False
    )
    head.document = {
        "revision": 1,
        "goal": UP,
        "images": [image],
        "requests": [],
        "interfaces": INTERFACES,
    }
    machine = start(tmp_path, minos, head, macs=MACS)
    try:
        head.wait(lambda: told(head, NETWORK_SET) or told(head, NETWORK_FAILED), 120)
        assert not told(head, NETWORK_FAILED), told(head, NETWORK_FAILED)
        head.wait_for(image="ACTIVE")
        head.wait(lambda: told(head, NETWORK_SET) and told(head, STARTED))
        assert told(head, NETWORK_SET)[0]["at"] <= told(head, STARTED)[0]["at"], (
            "the interfaces are there before the first image"
        )
        head.wait(lambda: told(head, NODE_API))
        as_wanted(head, machine)
        print(
            "the longest gap between two HELLOs was "
            f"{max(b - a for a, b in itertools.pairwise(head.heard_at)):.2f} s"
        )
        goes_live(head, machine, image)
        a_cable_is_pulled(head, machine)
        others_change(head, machine)
        another_agent(head, machine)
        assert len(head.joins) == 1 and len(told(head, STARTED)) == 1, (
            "the session and the image have lived through all of it"
        )
    finally:
        machine.stop()
        head.close()
        print(machine.console()[-6000:])


def as_wanted(head: FakeHead, machine: Machine) -> None:
    """As the node's own tools and /proc have it."""
    bond = run(head, machine, "cat /proc/net/bonding/bond0")
    assert (
        "active-backup" in bond
        and "Primary Slave: lan0" in bond
        and "Slave Interface: lan1" in bond
    )
    assert f"Permanent HW addr: {MACS[1]}" in bond
    shown = run(head, machine, "ip address")
    lines = [line for line in shown.splitlines() if line[:1].isdigit()]
    of = {line.split(":")[1].strip().partition("@")[0]: line for line in lines}
    assert set(of) == {"lo", "lan0", "lan1", "lan2", "bond0", "v20"}, shown
    assert (
        "mtu 1600" in of["bond0"]
        and "mtu 1600" in of["v20"]
        and "mtu 1600" in of["lan1"]
        and "mtu 1280" in of["lan2"]
    )
    assert [line.split()[1] for line in shown.splitlines() if line.strip().startswith("inet ")] == [
        "127.0.0.1/8",
        "10.0.2.15/24",
        "10.20.0.5/24",
    ], shown
    assert "fd20::5/64" in shown and "fd02::5/64" in shown
    routes = run(head, machine, "ip route; ip -6 route; cat /proc/net/vlan/config")
    assert (
        "default via 10.0.2.2 dev bond0" in routes
        and "10.30.0.0/16 via 10.20.0.1 dev v20" in routes
    )
    assert "fd30::/32 via fd20::1 dev v20" in routes and "v20            | 20  | bond0" in routes
    head.wait(
        lambda: (
            view(head, "bond0").get("state") == "up"
            and view(head, "bond0")["legs"]
            == [{"name": "lan0", "state": "up"}, {"name": "lan1", "state": "up"}]
        )
    )
    assert (
        view(head, "bond0")["addresses"] == ["10.0.2.15/24"] and view(head, "v20")["trouble"] == ""
    )


def goes_live(head: FakeHead, machine: Machine, image: dict[str, Any]) -> None:
    """A VLAN is added under a running image; another mode for the bond waits."""
    head.want([image], interfaces=LIVE)
    head.wait(lambda: len(told(head, NETWORK_SET)) == 2)
    assert "10.31.0.5/24" in run(head, machine, "ip address show v30")
    legs = {"legs": ["lan0", "lan1"], "mode": "802.3ad"}
    head.want([image], interfaces={**LIVE, "bond0": {"bond": legs, "mtu": 1600}})
    head.wait(lambda: told(head, NETWORK_FAILED, "bond0: waits for the next boot"))
    assert "active-backup" in run(head, machine, "cat /proc/net/bonding/bond0")
    head.want([image], interfaces=LIVE)


def a_cable_is_pulled(head: FakeHead, machine: Machine) -> None:
    """That of the boot card: the node goes on by the other one."""
    machine.cable(0, False)
    head.wait(lambda: told(head, LEG_DOWN, "lan0 of bond0: no carrier"))
    assert "Currently Active Slave: lan1" in run(head, machine, "cat /proc/net/bonding/bond0")
    machine.cable(0, True)
    head.wait(lambda: told(head, LEG_UP, "lan0 of bond0"))


def others_change(head: FakeHead, machine: Machine) -> None:
    """What was changed is put back, and told."""
    run(head, machine, "ip link set lan2 mtu 1400; ip address del 10.20.0.5/24 dev v20")
    head.wait(
        lambda: told(
            head, NETWORK_CHANGED, "lan2 was changed by others, and was set again: mtu 1280 -> 1400"
        )
    )
    head.wait(lambda: told(head, NETWORK_CHANGED, "10.20.0.5/24 is gone"))
    assert "10.20.0.5/24" in run(head, machine, "ip address show v20") and "mtu 1280" in run(
        head, machine, "ip link show lan2"
    )


def another_agent(head: FakeHead, machine: Machine) -> None:
    """What was changed while there was no agent is seen by the next one."""
    with contextlib.suppress(
        OSError, HTTPException, AssertionError, IndexError
    ):  # who would answer is killed
        run(head, machine, "ip link del v30; kill -9 $(cat /run/layercake/agent.pid)")
    head.wait(lambda: told(head, NETWORK_CHANGED, "v30 was changed by others"))
    head.wait(lambda: view(head, "v30").get("state") == "up")
