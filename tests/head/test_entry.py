"""One node's entry changed by itself: what is there stays, others are not touched, and what cannot
be is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from layercake.inventory.entry import changed, diff, entry_of
from layercake.inventory.load import load
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import InputError, NotFound, Refused
from tests.support.world import World

RACK = """
networks:
  far: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: {10.30.0.0/16: 10.20.0.9}, relays: [192.168.1.1],
    guests: [10.20.0.200-10.20.0.250, 10.20.0.199]}
  six: {subnet: "fd00:6::/64", gateway: "fd00:6::9"}
groups:
  rack1: {domain: true, kernel_args: quiet loglevel=3}
  big: {profile: server}
defaults: {console: "ttyS0,115200n8", boot_timeout: 900}
nodes:
  n[0-2]:
    mac: "52:54:00:00:00:10+"
    ip: 10.20.0.10+
    groups: [rack1]
    bmc: {driver: redfish, address: 10.9.0.1+, username: root, password: {file: /secrets/bmc}, system: /redfish/v1/Systems/1}
  n3:
    mac: ["52:54:00:00:00:20", "52:54:00:00:00:21"]
    ip: 10.20.0.33
    groups: [rack1, big]
    state: off
    firmware: uefi
    secure_boot: true
    aliases: [login, www.far.test]
    bmc: none
    interfaces: {data: {mac: "52:54:00:00:00:21", mtu: 9000, addresses: [10.40.0.3/24]}}
  n5:
    ip: 10.20.0.35
    place: {circuit: eth7, remote: sw1}
    serial: SN-7
    replace: auto
    hardware: hold
    tpm: recorded
    labels: {rack: r7}
    authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZzQ0hZc0hZc0hZc0hZc0hZc0hZc0hZc0hZc0hZc0hZ me"]
    files:
      /etc/motd: {content: hello, mode: "0600", owner: root, on_change: write}
      /etc/key: {secret: munge, on_change: reload munge, owner: munge}
      minos:/etc/other: {source: other}
      /opt/site: {tree: site}
      /etc/hosts: {leave: true}
    disks:
      system:
        match: {min: 100G, max: 2T, rotational: false, serial: [A1, A2]}
        count: all
        raid: 1
        kept: true
        encrypt: kept
        volumes: {data: {size: 16G, mount: /data, keeps: true, mode: "1777"}, more: {size: rest, type: xfs, mount: /more}}
        wipe: [A1]
      scratch: {match: {transport: nvme}, volumes: {scratch: {mount: /scratch}, swap: {size: 4G, type: swap}}}
    uinit:
      tune: {sysctl: {vm.swappiness: 1}, order: 10}
      home: {mount: {what: "10.99.0.5:/home", where: /home, type: nfs4, options: ro}, retries: 3}
      clocks: {run: [/usr/local/sbin/clocks, --max], when: {exists: /dev/nvidia0}, on_failure: go-on, timeout_s: 30}
      more: {modules: ["dummy numdummies=2"]}
  n4: {mac: "52:54:00:00:00:30", ip: "fd00:6::4", arch: aarch64, firmware: uefi}
"""
KNOWN: dict[str, Any] = {"heads": ("10.20.0.254/24", "fd00:6::1/64")}


@pytest.mark.parametrize("name", ["n0", "n1", "n2", "n3", "n4", "n5"])
def test_an_entry_says_all_that_there_is_of_a_node(world: World, name: str) -> None:
    parts = world.head.table.parts
    rack = load(RACK, "rack.yaml", parts=parts, **KNOWN)
    node = rack.nodes[name]
    assert changed(node, {}, (), parts=parts, networks=rack.networks, **KNOWN) == node, entry_of(
        node
    )


def test_a_default_that_is_written_is_no_change_of_another_value(world: World) -> None:
    parts = world.head.table.parts
    text = RACK.replace('console: "ttyS0,115200n8"', '"console": ttyS0')
    rack = load(text, "rack.yaml", parts=parts, **KNOWN)
    node = rack.nodes["n0"]
    other = changed(node, {"kernel_args": "x"}, (), parts=parts, networks=rack.networks, **KNOWN)
    [change] = diff({"n0": node}, {"n0": other})
    assert list(change.fields) == ["kernel_args"]


def test_values_are_set_and_unset_also_in_mappings(world: World) -> None:
    parts = world.head.table.parts
    rack = load(RACK, "rack.yaml", parts=parts, **KNOWN)
    wanted = {"bmc.address": "10.9.0.77", "kernel_args": "debug", "ip": "10.20.0.77"}
    node = changed(
        rack.nodes["n1"],
        wanted,
        ["console", "bmc.system"],
        parts=parts,
        networks=rack.networks,
        **KNOWN,
    )
    entry = entry_of(node)
    assert (entry["ip"], entry["kernel_args"], entry.get("console")) == (
        "10.20.0.77",
        "debug",
        None,
    )
    assert entry["bmc"]["address"] == "https://10.9.0.77" and entry["bmc"]["password"] == {
        "file": "/secrets/bmc"
    }
    assert node.groups == ("rack1",) and node.domains == ("rack1",)


def deep(levels: int) -> Any:
    """A value in so many lists."""
    found: Any = "x"
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"ip": "10.20.0.300"}, "is not an IPv4 address"),
        ({"ip": "10.77.0.1"}, "is in no network"),
        ({"colour": "red"}, "unknown key"),
        ({"groups": ["big"]}, "cannot change groups of n0 alone"),
        ({"id": "x"}, "cannot change id"),
        ({"mac.a": 1}, "mac is no mapping"),
        ({"kernel_args": "a\nb"}, "may not stand in kernel arguments"),
        ({"bmc": {"driver": "sorcery"}}, "n0"),
        ({"labels": {f"k{number}": "v" for number in range(4000)}}, "its entry has .* bytes"),
        ({"labels": deep(5000)}, "nested too deeply"),
        ({"labels": deep(200)}, "n0"),
        ({"ip": "10.77.0.1", "firmware": "z"}, "and 1 more mistake \\("),
    ],
)
def test_what_cannot_be_is_told_and_the_node_named_once(
    world: World, wanted: dict[str, Any], says: str
) -> None:
    rack = load(RACK, "rack.yaml", parts=world.head.table.parts, **KNOWN)
    with pytest.raises(InputError, match=says) as refused:
        changed(
            rack.nodes["n0"],
            wanted,
            (),
            parts=world.head.table.parts,
            networks=rack.networks,
            **KNOWN,
        )
    assert refused.value.message.count("n0") <= 1


async def test_a_change_of_one_node_touches_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        world.head.modules.notifier, "changed", lambda record: told.append(record.name)
    )
    other = world.node("n1").node
    done = await world.ops.inventory.change("n0", {"kernel_args": "debug"}, ())
    assert (done["changed"], told, world.node("n1").node) == (["n0"], ["n0"], other)
    assert entry_of(world.node("n0").node)["kernel_args"] == "debug"
    assert world.events_of("n0")[-1].text.startswith(
        "changed in the inventory by"
    ) and math.isfinite(done["revision"])
    assert (await world.ops.inventory.change("n0", {"kernel_args": "debug"}, ()))["changed"] == []
    await world.restart()
    assert entry_of(world.node("n0").node)["kernel_args"] == "debug"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"ip": "10.1.0.11"}, "IP address 10.1.0.11 of n0 is n1's"),
        ({"mac": "52:54:00:00:00:11"}, "MAC address 52:54:00:00:00:11 of n0 is n1's"),
        ({"aliases": "n1"}, "name n1 of n0 is n1's"),
        ({"images": ["none"]}, "none"),
    ],
)
async def test_what_is_anothers_stays_his(world: World, wanted: dict[str, Any], says: str) -> None:
    before = world.node("n0").node
    with pytest.raises((InputError, Refused), match=says):
        await world.ops.inventory.change("n0", wanted, ())
    assert world.node("n0").node is before
    with pytest.raises(NotFound):
        await world.ops.inventory.change("nobody", {}, ())


async def test_secrets_do_not_go_elsewhere_unasked(world: World, tmp_path: Path) -> None:
    secret = world.directory / "secrets" / "bmc"
    secret.parent.mkdir(exist_ok=True, mode=0o700)
    secret.write_text("x")
    secret.chmod(0o600)
    bmc = {
        "driver": "ipmi",
        "address": "10.9.0.1",
        "username": "root",
        "password": {"file": str(secret)},
    }
    await world.ops.inventory.change("n0", {"bmc": bmc}, ())
    with pytest.raises(Refused, match="the secret of n0 would go to"):
        await world.ops.inventory.change("n0", {"bmc.address": "10.9.0.66"}, ())


PLAIN = """
defaults: {console: ttyS0, bmc: {driver: ipmi, timeout_s: 8.0}}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, bmc: {address: 10.2.0.1}}
"""
BMC = {"bmc": {"driver": "ipmi", "address": "10.2.0.1"}}


def _nested(wanted: dict[str, Any]) -> dict[str, Any]:
    """{"bmc.boot": value} as it stands in an inventory."""
    found: dict[str, Any] = {"bmc": dict(BMC["bmc"])}
    for key, value in wanted.items():
        first, _, last = key.partition(".")
        if last:
            found[first][last] = value
        else:
            found[first] = value
    return found


async def test_what_is_set_is_all_that_the_next_plan_shows(world: World) -> None:
    """A default that an inventory says is what nobody says after `node set`: that is no change."""
    inventory = world.ops.inventory
    await inventory.apply(PLAIN, "rack.yaml", None, True)
    await inventory.change("n0", {"kernel_args": "quiet"}, ())
    (change,) = (await inventory.plan(PLAIN, "rack.yaml"))["changes"]
    assert change["fields"] == {"kernel_args": ["quiet", None]}
    await inventory.change("n0", {}, ("kernel_args",))
    assert (await inventory.plan(PLAIN, "rack.yaml"))["changes"] == []
    other = PLAIN.replace("ttyS0", "ttyS1").replace("8.0", "9.5")
    (change,) = (await inventory.plan(other, "rack.yaml"))["changes"]
    assert {k: new for k, (_, new) in change["fields"].items()} == {
        "console": "ttyS1",
        "bmc.timeout_s": 9.5,
    }


@pytest.mark.parametrize(
    ("wanted", "later"),
    [
        ({"kernel_args": "quiet"}, ["kernel_args"]),
        ({"console": "ttyS1", "labels": {"rack": "r7"}}, ["console"]),
        ({"mac": "52:54:00:00:00:77"}, ["macs"]),
        ({"bmc.boot": "network", "bmc.timeout_s": 9.0}, []),
        ({"uinit": {"tune": {"sysctl": {"vm.swappiness": 1}}}}, ["uinit.tune.sysctl"]),
        ({"labels": {"rack": "r7"}, "remedy": "hold"}, []),
    ],
    ids=["kernel arguments", "console", "board", "BMC", "task", "label"],
)
async def test_what_takes_effect_at_the_next_boot_is_told(
    world: World, wanted: dict[str, Any], later: list[str]
) -> None:
    inventory = world.ops.inventory
    await inventory.apply(PLAIN, "rack.yaml", None, True)
    world.attach("n0")
    world.send(world.hello("n0"))
    text = msgspec.yaml.encode(
        {"nodes": {"n0": {"mac": "52:54:00:00:00:10", "ip": "10.1.0.10", **_nested(wanted)}}}
    ).decode()
    (planned,) = (await inventory.plan(text, "rack.yaml"))["plans"]
    assert [field for field in planned["at_boot"] if field in later] == later
    answer = await inventory.change("n0", wanted, ())
    told = answer["at_boot"].get("n0", [])
    assert [field for field in told if not field.startswith("uinit")] == [
        field for field in later if not field.startswith("uinit")
    ]
    assert bool(told) == bool(later) == bool(planned["at_boot"])


async def test_a_node_that_is_switched_on_now_boots_with_it(world: World) -> None:
    inventory = world.ops.inventory
    await inventory.apply(PLAIN, "rack.yaml", None, True)
    world.head.engine.post(world.node("n0"), Discovered({"power": "OFF"}))
    text = PLAIN.replace("console: ttyS0", "console: ttyS1")
    (planned,) = (await inventory.plan(text, "rack.yaml"))["plans"]
    assert "power-on" in planned["chain"] and planned["at_boot"] == []
    assert (await inventory.apply(text, "rack.yaml", None, True))["at_boot"] == {}
