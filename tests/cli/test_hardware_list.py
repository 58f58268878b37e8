"""The hardware of many nodes, which kernel each runs, and in which roll it is: listed, queried,
folded and summed, against a real head."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from layercake.base.text import amount_text
from layercake.cli.main import main
from layercake.features.boots.boot_sets import BootSets
from layercake.features.machines.manager import Machines
from layercake.features.machines.table import Machine, Rows
from layercake.features.nodes.lists.query import MoreNames, parse
from layercake.features.nodes.queries import NodeQueries
from layercake.features.rolls.manager import Rolls
from layercake.kraken.errors import InputError
from minos.build.sets import BootSet
from tests.support.api import served
from tests.support.rollnodes import Site, on_socket

TB = 1_920_383_410_176


def survey(serial: str, gib: int = 256, disks: int = 2, bios: str = "2.1", **others: Any) -> Any:
    return {
        "smbios": {
            "system": {"vendor": "ACME", "product": "X1", "serial": serial},
            "board": {"product": "B7", "version": "A02"},
            "bios": {"version": bios},
        },
        "cpu": {"model": "Fast(R) 9", "logical": 64, "cores": 32, "sockets": 2},
        "memory": (gib << 30) - 12345,
        "dimms": [{"slot": f"A{n}", "mb": gib << 8} for n in range(4)],
        "disks": [{"name": f"sd{n}", "bytes": TB, "model": "D9"} for n in range(disks)],
        "cards": [{"name": "eth0", "driver": "mlx5_core"}, {"name": "usb0", "driver": "cdc_ether"}],
        "bmc": {"firmware": "1.40"},
        **others,
    }


@pytest.fixture
async def site(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    async with on_socket(tmp_path, 6, socket) as found:
        machines, node = found.world.head.part(Machines), found.world.node
        await machines.survey(node("n0"), survey("SN-0"))
        await machines.survey(node("n1"), survey("SN-1"))
        await machines.survey(
            node("n2"), survey("SN-2", 512, 1, gpus=[{"vendor": "10de", "device": "20b5"}])
        )
        await machines.survey(node("n3"), survey("SN-3", bios="2.0"))
        yield found


async def run(
    capsys: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> tuple[list[list[str]], str]:
    assert await asyncio.to_thread(main, ["node", *words]) == code
    said = capsys.readouterr()
    return [line.split() for line in said.out.splitlines()], said.err


async def names(site: Site, where: str, *, brief: bool = False) -> list[str]:
    head = site.world.head
    records = await head.part(NodeQueries).matching(list(head.store), where, brief=brief)
    return [record.name for record in records]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("memory>=512G", ["n2"]),
        ("memory=256G and bios!=2.0", ["n0", "n1"]),
        ("memory<256G", []),
        ("disk=1.92TB and disks=1", ["n2"]),
        ("storage>3TB", ["n0", "n1", "n3"]),
        ('cpus=64 and cpu="Fast(R) 9" and bios=2.0', ["n3"]),
        ('nic=mlx5_core and board="B7 A02"', ["n0", "n1", "n2", "n3"]),
        ("gpus>0", ["n2"]),
        ("gpu=10de:20b5", ["n2"]),
        ("serial=SN-1", ["n1"]),
        ('model="ACME X1" and not gpu=10de:20b5', ["n0", "n1", "n3"]),
    ],
)
async def test_nodes_are_found_by_their_hardware(site: Site, where: str, found: list[str]) -> None:
    assert await names(site, where) == found


@pytest.mark.parametrize(
    ("where", "why", "hint"),
    [
        ("memory=300G", "memory is never '300G'", "256G, 512G"),
        ("cpus=63", "cpus is never '63'", "64"),
        ("bios=2.2", "bios is never '2.2'", "did you mean 2.1?"),
        ("nic=mlx5", "nic is never 'mlx5'", "did you mean mlx5_core?"),
        ("memory>lots", "'lots' is no amount", "256G"),
        ("memry>1G", "nodes have no 'memry'", "did you mean memory?"),
    ],
)
async def test_what_no_node_has_is_a_mistake(site: Site, where: str, why: str, hint: str) -> None:
    with pytest.raises(InputError, match=why.replace("(", r"\(")) as caught:
        await names(site, where)
    assert hint in str(caught.value.hint)


async def test_viewers_can_neither_see_nor_guess_hardware(site: Site) -> None:
    with pytest.raises(InputError, match="nodes have no 'memory'"):
        await names(site, "memory>1G", brief=True)
    with pytest.raises(InputError, match="nodes have no 'system-serial'"):
        await names(site, "system-serial=SN-1", brief=True)
    assert await names(site, "not roll=1", brief=True) == [f"n{n}" for n in range(6)]


def test_amounts_are_shown_as_they_can_be_asked_for() -> None:
    for amount, text in ((64, "64"), (256 << 30, "256G"), (TB, "1.92TB"), (480 * 10**9, "480GB")):
        assert amount_text(amount) == text
        assert parse(f"x={text}", {}, more=MoreNames(amounts={"x": [amount]})).text == f"x={text}"
    assert amount_text(5 * 10**15) == "5000TB"


async def test_the_list_its_columns_and_its_order(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = await run(
        capsys, "hardware", "--columns", "name,memory,disk,nic,bmc-firmware,system-serial"
    )
    assert rows[0] == ["NAME", "MEMORY", "DISK", "NIC", "BMC-FIRMWARE", "SYSTEM-SERIAL"]
    assert rows[1] == ["n0", "256G", "2x", "1.92TB", "mlx5_core", "1.40", "SN-0"]
    assert rows[5] == ["n4", "-", "-", "-", "-", "-"], "no survey: nothing is made up"
    rows, _ = await run(capsys, "hardware", "n[0-3]", "--sort", "-memory", "--columns", "name")
    assert rows[1] == ["n2"]
    rows, _ = await run(capsys, "list", "--columns", "name,memory", "--search", "n2")
    assert rows[1:] == [["n2", "512G"]]
    rows, _ = await run(capsys, "list", "n[0-3]", "--sort", "-memory", "--columns", "name,place")
    assert rows[1] == ["n2", "-"]


async def test_equal_hardware_is_folded_and_summed(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["node", "hardware", "--fold", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [group["nodes"] for group in groups] == [["n0", "n1"], ["n4", "n5"], ["n2"], ["n3"]]
    assert groups[0]["disk"] == "2x 1.92TB" and "system-serial" not in groups[0]
    rows, _ = await run(capsys, "hardware", "--fold", "--where", "memory>1G", "--columns", "bios")
    assert rows == [["NODES", "N", "BIOS"], ["n[0-2]", "3", "2.1"], ["n3", "1", "2.0"]]
    asked = ["node", "hardware", "--fold", "--where", "memory>100T"]
    assert await asyncio.to_thread(main, asked) == 0
    assert "of these nodes, none is so: memory>100T" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["node", "hardware", "--sum", "--json"]) == 0
    sums: Mapping[str, int] = json.loads(capsys.readouterr().out)["sums"]
    assert sums["nodes"] == 6 and sums["without a survey"] == 2
    assert sums["cpus"] == 256 and sums["memory"] == (3 * 256 + 512) << 30
    assert sums["storage"] == 7 * TB and sums["gpus"] == 1


async def test_which_kernel_a_node_runs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    boots = site.world.head.part(BootSets)
    built = [
        BootSet(name, boots.directory / name, 0.0, kernel, 1, agent=True)
        for name, kernel in (("a", "6.1.0-9"), ("b", "6.1.0-10"))
    ]
    boots.note(built)
    for name, runs in (("n0", "a"), ("n1", "b"), ("n2", "b")):
        node = site.world.node(name)
        node.boots = msgspec.structs.replace(node.boots, runs=runs)
    assert await names(site, "kernel=6.1.0-10") == ["n1", "n2"]
    with pytest.raises(InputError, match="kernel is never") as caught:
        await names(site, "kernel=6.1.0-11")
    assert "did you mean 6.1.0-10?" in str(caught.value.hint)
    rows, _ = await run(capsys, "list", "--columns", "name,kernel", "--sort", "kernel")
    assert [row[1] for row in rows[1:5]] == ["6.1.0-9", "6.1.0-10", "6.1.0-10", "-"]


async def test_in_which_roll_a_node_is(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="nodes have no 'rolls'"):
        await names(site, "rolls=1")
    roll = await site.start("n[0-1]", "two", batch="1")
    assert await names(site, f"roll={roll.id}") == ["n0", "n1"]
    of_n0 = site.world.head.part(Rolls).get(roll.id).nodes[site.world.node("n0").node.id]
    rows, _ = await run(capsys, "list", "--columns", "name,roll,roll-state", "--sort", "name")
    assert rows[1] == ["n0", str(roll.id), of_n0.state.value] and rows[3] == ["n2", "-", "-"]
    assert "n0" in await names(site, f"roll-state={of_n0.state.value}")
    assert (await site.until_over(roll.id))["state"] == "done"
    rows, _ = await run(capsys, "list", "--columns", "name,roll", "--sort", "name")
    assert rows[1] == ["n0", "-"], "a roll that is over has no node"


async def test_rows_of_an_older_version_are_summed_up_from_their_reports(site: Site) -> None:
    head = site.world.head
    rows = Rows(head.database, head.store)
    before = {one.key: one.hardware for one in rows.all()}
    assert len(before) == 4 and all(before.values())

    def strip(db: sqlite3.Connection) -> None:
        for key, data in db.execute("SELECT key, data FROM machines").fetchall():
            old = msgspec.structs.replace(msgspec.json.decode(data, type=Machine), hardware=None)
            db.execute(
                "UPDATE machines SET data = ? WHERE key = ?", (msgspec.json.encode(old), key)
            )

    await head.database.execute(head.store, strip)
    assert {one.key: one.hardware for one in rows.all()} == before


async def test_what_features_know_is_given_by_name_and_never_kept(site: Site) -> None:
    async with served(site.world.head, local=True) as client:
        asked = {"fields": "name,kernel,roll,hardware", "range": "n0"}
        answer = await client.get("/v1/nodes", params=asked)
        assert answer.status == 200 and "ETag" not in answer.headers
        (node,) = (await answer.json())["nodes"]
        assert node["kernel"] is None and node["roll"] is None
        assert node["hardware"]["memory"] == 256 << 30 and node["hardware"]["disks"] == [TB, TB]
        whole = await client.get("/v1/nodes", params={"range": "n0"})
        assert "hardware" not in (await whole.json())["nodes"][0] and "ETag" in whole.headers
        since = await client.get("/v1/nodes", params={**asked, "range": "", "since": "1-1"})
        assert since.status == 400 and "kernel" in (await since.json())["error"]


async def test_an_image_that_no_node_has_any_more_is_no_mistake(site: Site) -> None:
    assert await names(site, "images=two") == [] == await names(site, "image=two")
    with pytest.raises(InputError, match="images is never 'tow'"):
        await names(site, "images=tow")
    with pytest.raises(InputError, match="image is never 'onee'") as caught:
        await names(site, "image=onee")
    assert "did you mean one?" in caught.value.hint
