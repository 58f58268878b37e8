"""What is done to many nodes is done in slices: between two turns of the event loop nothing is done
that grows with the number of nodes, but for what is cheap; nor does all of it grow faster than
that number."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from imageapi.store.store import ImageStore
from layercake.features.inventory.new_inventory import Consent
from layercake.features.rolls.operations import RollStart
from layercake.kraken.errors import Refused
from layercake.moduleapi.event_loop import slices
from tests.support.operations import Operations
from tests.support.rollnodes import a_site
from tests.support.world import World

FEW, MANY = 20, 60
AT_MOST = 16.0
"""Calls for each node: for every Python function those of the turn in which it is called most."""

Work = Callable[[Operations], Coroutine[Any, Any, Any]]


class Turns:
    """{function: calls} of it, `most` in one turn of the event loop and in `all` of them."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.all: Counter[str] = Counter()
        self._now: Counter[str] = Counter()

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_name == "_run_once" and code.co_filename.endswith("base_events.py"):
            self.most |= self._now
            self.all.update(self._now)
            self._now = Counter()
        else:
            self._now[f"{Path(code.co_filename).name}:{code.co_name}"] += 1

    async def note(self, work: Awaitable[Any]) -> None:
        """Notes them while that is done."""
        sys.setprofile(self._note)
        try:
            await work
            await asyncio.sleep(0)
        finally:
            sys.setprofile(None)


def inventory(count: int, image: str, line: str) -> str:
    """Nodes of one enclosure that have a secret each, and a kernel command line of their own."""
    bmc = (
        "{{driver: redfish, address: 10.2.0.1, system: /redfish/v1/Systems/{0}, username: admin, "
        "password: {{env: BMC_{0}}}}}"
    )
    node = "{{mac: '52:54:00:00:{0:02x}:01', ip: 10.1.0.{0}, kernel_args: {1}={0}, bmc: {2}}}"
    rows = (f"  n{n}: " + node.format(n, line, bmc.format(n)) for n in range(1, count + 1))
    return "\n".join([f"defaults: {{images: [{image}]}}", "nodes:", *rows])


def new(ops: Operations) -> str:
    """The inventory of as many nodes, each with another image and another command line."""
    return inventory(len(ops.head.store), "two", "after")


async def moved(ops: Operations) -> None:
    """The enclosure has another address."""
    consent = Consent(by="ann", confirm_secrets=True)
    wanted = {"bmc.address": "10.2.0.2"}
    await ops.inventory.change_some(lambda: ops.head.store.select("@all"), wanted, (), consent)


async def maintained(ops: Operations) -> None:
    await ops.care.begin("@all", "disks", "ann", None)


async def frozen(ops: Operations) -> None:
    await ops.care.freeze("@all", "storm", "ann")


WORK: dict[str, tuple[Work | None, Work]] = {
    "plan": (None, lambda ops: ops.inventory.plan(new(ops), "test.yaml")),
    "apply": (None, lambda ops: ops.inventory.apply(new(ops), "test.yaml", None, True)),
    "set": (None, moved),
    "freeze": (None, frozen),
    "thaw": (frozen, lambda ops: ops.care.thaw("@all", "ann")),
    "maintenance": (None, maintained),
    "maintenance end": (maintained, lambda ops: ops.care.end("@all", "ann")),
    "adopt": (None, lambda ops: ops.care.adopt("@all", "ann")),
    "treat": (None, lambda ops: ops.care.release("@all", "ann")),
    "off": (None, lambda ops: ops.nodes.set_state("@all", "off", True, "ann")),
    "clear": (None, lambda ops: ops.nodes.clear("@all", "ann")),
    "cycle": (None, lambda ops: ops.power.cycle("@all", True, "ann")),
    "images at once": (None, lambda ops: ops.rolls.at_once("@all", "two", None, "ann")),
    "roll": (None, lambda ops: ops.rolls.start(RollStart("@all", "two", by="ann"))),
    "revoke": (None, lambda ops: ops.authority.revoke("@all", "ann")),
    "release": (None, lambda ops: ops.releases.begin("@all", True, "ann")),
}


async def turns(directory: Path, count: int, before: Work | None, work: Work) -> Turns:
    """The turns in which something is done to so many nodes."""
    directory.mkdir()
    world = World(directory)
    world.open()
    for name in ("one", "two"):
        file = directory / f"{name}.squashfs"
        file.write_bytes(b"hsqs" + name.encode() * 10)
        world.head.part(ImageStore).add(file, name, {"systemd": False})
    await world.ops.inventory.apply(inventory(count, "one", "before"), "test.yaml", None, True)
    try:
        if before is not None:
            await before(world.ops)
        noted = Turns()
        await noted.note(work(world.ops))
        return noted
    finally:
        await world.close_head()
        world.client.close()


@pytest.mark.parametrize("what", WORK)
async def test_no_turn_grows_with_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)  # whoever pauses at all does so after each node
    monkeypatch.setattr(slices, "ROUNDS", 1)
    few, many = [await turns(tmp_path / str(n), n, *WORK[what]) for n in (FEW, MANY)]
    grown = many.most - few.most
    assert many.most and grown.total() / (MANY - FEW) <= AT_MOST, grown.most_common(12)
    assert many.all.total() <= few.all.total() * MANY / FEW * 1.2, (many.all - few.all).most_common(
        12
    )


STOPS: dict[str, Work] = {
    "off": lambda ops: ops.nodes.set_state("@all", "off", False, "ann"),
    "cycle": lambda ops: ops.power.cycle("@all", False, "ann"),
    "release": lambda ops: ops.releases.begin("n[0-3]", False, "ann"),
}


@pytest.mark.parametrize("what", STOPS)
async def test_a_node_that_becomes_busy_meanwhile_is_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with a_site(tmp_path, 4) as site:
        world = site.world

        async def says_busy(turn: slices.TimeSlice) -> None:
            world.send(world.hello("n3", image="ACTIVE", busy="BUSY"))

        with monkeypatch.context() as patches, pytest.raises(Refused, match="n3: BUSY"):
            patches.setattr(slices, "SLICE_S", -1.0)
            patches.setattr(slices.TimeSlice, "pause", says_busy)
            await STOPS[what](world.ops)
        records = list(world.head.store)
        assert all(r.node.state == "up" and not r.care.order and not r.held for r in records)


async def test_all_nodes_get_the_same_content_though_the_image_is_added_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_site(tmp_path, 4) as site:
        store = site.world.head.part(ImageStore)

        async def is_added(turn: slices.TimeSlice) -> None:
            file = tmp_path / "two.squashfs"
            file.write_bytes(b"hsqs" + b"anew" * 10)
            store.add(file, "two", {"systemd": False})

        with monkeypatch.context() as patches:
            patches.setattr(slices, "SLICE_S", -1.0)
            patches.setattr(slices.TimeSlice, "pause", is_added)
            await site.world.ops.rolls.at_once("@all", "two", None, "ann")
        assert len({record.wanted[0].digest for record in site.world.head.store}) == 1
