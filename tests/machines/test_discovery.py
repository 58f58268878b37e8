"""Machines that no inventory knows: what they hand in, what of it is kept, and how they come into
the inventory."""

from __future__ import annotations

from typing import Any

import pytest
from patience import patience

from layercake.features.machines.commands import inserted
from layercake.features.machines.manager import Machines
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.strangers import LIFE_S, Tickets
from tests.support.world import World, node_client

FULL: dict[str, Any] = {
    "smbios": {"system": {"vendor": "ACME", "product": "X1", "serial": "SN-1"}},
    "cpu": {"logical": 4},
    "memory": 8 << 30,
    "dimms": [{"slot": "A1", "mb": 4096}, {"slot": "A2", "mb": 4096}],
    "disks": [{"name": "sda", "bytes": 1000, "model": "D", "serial": "1"}],
    "cards": [{"name": "eth0", "mac": "02:00:00:00:00:01", "link": True, "mbps": 10000}],
    "neighbours": {"eth0": {"switch": "sw1.site", "port": "7"}},
}


def report(serial: str = "SN-1", port: str = "7", **others: Any) -> dict[str, Any]:
    return {
        **FULL,
        "smbios": {"system": {"vendor": "ACME", "product": "X1", "serial": serial}},
        "neighbours": {"eth0": {"switch": "sw1.site", "port": port}},
        **others,
    }


class Stranger:
    """A machine that has booted by a ticket."""

    def __init__(
        self, world: World, mac: str = "02:00:00:00:00:01", address: str = "10.1.0.200"
    ) -> None:
        self.world, self.mac, self.address = world, mac, address
        self.ticket = Tickets(world.directory, world.head.store.wall).issue(mac, address)

    async def says(self, found: Any = None, **others: Any) -> dict[str, Any]:
        body = {
            "ticket": self.ticket,
            "mac": self.mac,
            "boot_id": "b",
            **({} if found is None else {"report": found}),
            **others,
        }
        return await self.world.head.part(Machines).stranger(body, self.address)


async def test_a_stranger_reports_and_waits(world: World) -> None:
    one = Stranger(world)
    assert await one.says(report()) == {"then": "wait", "again_s": 30.0}
    (shown,) = world.ops.machines.all()
    assert (
        shown["mac"],
        shown["product"],
        shown["serial"],
        shown["switch"],
        shown["port"],
        shown["on"],
    ) == ("02:00:00:00:00:01", "X1", "SN-1", "sw1.site", "7", True)
    assert (await world.ops.machines.one("02-00-00-00-00-01"))["report"].memory == 8 << 30
    assert "machine.discovered" in [e.kind for e in world.head.store.events]
    world.clock.now += LIFE_S - 20
    assert (await one.says())["then"] == "off"


async def test_a_ticket_is_for_one_card_at_one_address_for_a_while(world: World) -> None:
    one, other = Stranger(world), Stranger(world, "02:00:00:00:00:02", "10.1.0.201")
    for wrong in (
        {"ticket": other.ticket},
        {"mac": other.mac},
        {"ticket": "9" * 12 + ".00"},
        {"ticket": None},
        {"ticket": "\ud800"},
    ):
        with pytest.raises(Refused):
            await one.says(report(), **wrong)
    one.address = other.address
    with pytest.raises(Refused):
        await one.says(report())
    world.clock.now += LIFE_S + 1
    with pytest.raises(Refused, match="too old"):
        await other.says(report())
    assert world.ops.machines.all() == []


async def test_a_stranger_has_no_rights(world: World) -> None:
    """Its ticket opens no other door."""
    one = Stranger(world)
    async with node_client(world, one.address) as client:
        for method, path in (
            ("GET", "desired"),
            ("GET", "trust"),
            ("GET", "secrets/x"),
            ("GET", "agent/x"),
            ("POST", "events"),
            ("POST", "survey"),
            ("POST", "drivers"),
            ("GET", "modules/x"),
            ("POST", "answers/1"),
        ):
            answer = await client.request(
                method,
                f"/node/v1/{path}",
                json={"ticket": one.ticket},
                headers={"Authorization": one.ticket},
            )
            assert answer.status == 401, path
        assert (
            await client.post("/node/v1/machine", json={"ticket": "no", "mac": one.mac})
        ).status == 403
        assert (await client.post("/node/v1/machine", data=b"[" * 100_000)).status == 400
        good = await client.post(
            "/node/v1/machine", json={"ticket": one.ticket, "mac": one.mac, "report": report()}
        )
        assert good.status == 200 and set(await good.json()) == {"then", "again_s"}


async def test_who_is_in_the_inventory_by_now_starts_anew(world: World) -> None:
    one = Stranger(world, "52:54:00:00:00:10")
    assert (await one.says(report()))["then"] == "reboot"
    assert world.ops.machines.all() == []


async def test_it_is_known_after_a_restart_and_forgotten_when_a_person_says_so(
    world: World,
) -> None:
    await Stranger(world).says(report())
    await world.restart()
    assert [m["serial"] for m in world.ops.machines.all()] == ["SN-1"]
    await world.ops.machines.forget("02:00:00:00:00:01", "me")
    assert world.ops.machines.all() == []
    with pytest.raises(NotFound):
        await world.ops.machines.one("02:00:00:00:00:01")


async def rack(world: World, ports: list[str], serials: list[str] | None = None) -> None:
    for n, port in enumerate(ports):
        one = Stranger(world, f"02:00:00:00:01:{n:02x}", f"10.1.0.{100 + n}")
        await one.says(report((serials or [f"SN-{n}" for n in range(99)])[n], port, cards=[]))


async def test_a_rack_is_adopted_in_the_order_of_its_ports(world: World) -> None:
    await rack(world, ["Gi1/10", "Gi1/9", "Gi1/2"])
    made = world.ops.machines.adopt(
        [], "c[01-48]", "switch-port", "10.1.0.10", ["compute"], bmc=False
    )
    assert [(m["name"], m["ip"], m["place"]) for m in made["machines"]] == [
        ("c01", "10.1.0.12", "sw1.site port Gi1/2"),
        ("c02", "10.1.0.13", "sw1.site port Gi1/9"),
        ("c03", "10.1.0.14", "sw1.site port Gi1/10"),
    ]
    assert made["entries"][0] == (
        'c01: {mac: "02:00:00:00:01:02", ip: "10.1.0.12", groups: [compute], '
        'place: {switch: "sw1.site", port: "Gi1/2"}, serial: "SN-2"}'
    )
    before = (
        "# ours\ngroups: {compute: {console: ttyS0}}\nnodes:  # all of them\n  # the first two\n"
        '  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10}\n  n1: {mac: "52:54:00:00:00:11", ip: '
        "10.1.0.11}\n"
    )
    text = inserted(before, made["entries"])
    assert text.startswith("# ours\n") and "# the first two" in text
    plan = await world.ops.inventory.plan(text, "x.yaml")
    assert {c["node"] for c in plan["changes"] if c["action"] == "add"} == {"c01", "c02", "c03"}
    await world.ops.inventory.apply(text, "x.yaml", None, False)
    assert world.ops.machines.all() == []
    again = Stranger(world, "02:00:00:00:01:02", "10.1.0.102")
    assert (await again.says())["then"] == "reboot"


async def test_what_cannot_be_told_apart_is_not_adopted_by_that(world: World) -> None:
    await rack(world, ["7", "7"], ["SN-1", "SN-1"])
    for order in ("switch-port", "serial"):
        with pytest.raises(Refused, match="claim the same"):
            world.ops.machines.adopt([], "c[01-48]", order, "10.1.0.20", [], bmc=False)
    made = world.ops.machines.adopt([], "c[01-48]", "mac", "10.1.0.20", [], bmc=False)
    assert len(made["disputed"]) == 2 and not any(
        "serial" in line or "place" in line for line in made["entries"]
    )
    assert "machine.disputed" in [e.kind for e in world.head.store.events]


async def test_bad_adoptions(world: World) -> None:
    with pytest.raises(NotFound):
        world.ops.machines.adopt([], "c[01-48]", "mac", "10.1.0.20", [], bmc=False)
    await rack(world, ["7", "8"])
    for name, order, ip, groups in (
        ("c1", "mac", "10.1.0.20", []),
        ("c[", "mac", "10.1.0.20", []),
        ("c[1-2]", "x", "10.1.0.20", []),
        ("c[1-2]", "mac", "x", []),
        ("c[1-2]", "mac", "10.1.0.20", ["a: b"]),
        ("n[0-1]", "mac", "::", []),
    ):
        with pytest.raises((InputError, Refused)):
            world.ops.machines.adopt([], name, order, ip, groups, bmc=False)


def test_an_inventory_gets_more_nodes_and_stays_as_it_was() -> None:
    assert inserted("", ["a: {}"]) == "nodes:\n  a: {}\n"
    assert inserted("x: 1", ["a: {}"]) == "x: 1\nnodes:\n  a: {}\n"
    assert (
        inserted("nodes:\n    # c\n    n0: {}\n", ["a: {}"])
        == "nodes:\n    a: {}\n    # c\n    n0: {}\n"
    )
    with pytest.raises(InputError, match="not a block"):
        inserted("nodes: {n0: {}}\n", ["a: {}"])


async def test_two_thousand_strangers_cost_the_head_little(world: World) -> None:
    """All of them at one port with one serial number: the worst that they can say."""
    import time

    began = time.process_time()
    for n in range(2000):
        one = Stranger(world, f"02:00:00:01:{n >> 8:02x}:{n & 255:02x}", f"10.2.{n >> 8}.{n & 255}")
        await one.says(report(f"SN-{n // 2}", f"{n // 2}", cards=[]))
    again = await one.says()
    shown = world.ops.machines.all()
    assert (
        len(shown) == 2000
        and all(len(m["rivals"]) == 1 for m in shown)
        and again["again_s"] == 100.0
    )
    assert time.process_time() - began < patience(20.0)
