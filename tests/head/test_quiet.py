"""A HELLO that says nothing new takes a short way. It does what the long way does, whatever has
happened in between."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from layercake.agents.sync import Loss
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Session, WantedImage
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import WireError
from layercake.kraken.wire import Datagram, Kind, decode, encode
from tests.support.world import World, opened

NAMES = ("n0", "n1")
STEPS = 1500


def hello(world: World, name: str, key: bytes, mask: int, choice: dict[str, Any]) -> bytes:
    """A HELLO as it was chosen. The head makes nothing of the mask, but bytes that are not the last
    ones take the long way."""
    record, session = world.node(name), world.node(name).session
    layout = record.planner.layout
    state = layout.pack(
        {"power": "ON", "run": choice["run"], "image": choice["image"], "busy": choice["busy"]}
    )
    return encode(
        Datagram(
            kind=Kind.HELLO,
            node=uuid.UUID(record.node.id).bytes,
            session=session.number if session else 1,
            epoch=world.head.store.epoch + choice["epoch"],
            sequence=choice["sequence"],
            cfg_revision=record.cfg_revision - choice["old"],
            dsc_revision=1,
            layout=layout.digest if choice["layout"] else b"nope",
            mask=mask,
            state=state,
        ),
        key,
    )


def answers(world: World, name: str, key: bytes) -> list[tuple[Any, ...]]:
    """What the head has sent, but for its epoch."""
    world.client.setblocking(False)
    found: list[tuple[Any, ...]] = []
    while True:
        try:
            d = decode(world.client.recv(2048), key)
        except BlockingIOError:
            return found
        except WireError:  # it is for the other node
            continue
        found.append(
            (
                d.kind,
                d.session,
                d.epoch == world.head.store.epoch,
                d.sequence,
                d.cfg_revision,
                d.dsc_revision,
                d.mask,
                d.state,
            )
        )


def seen(world: World, record: Record) -> tuple[Any, ...]:
    """All that is kept of a node that a HELLO might change."""
    return (
        record.machine.state,
        record.machine.active,
        record.machine.quarantine,
        record.machine.held_until,
        record.acked,
        record.running,
        record.cfg_revision,
        record.dsc_revision,
        record.last_seen,
        record.care,
        record.session,
        [(e.kind, e.text) for e in world.events_of(record.name)],
    )


def step(world: World, number: int, mask: int, told: list[Any]) -> object:
    """One thing that happens, chosen by its number, the same in each world."""
    chosen = random.Random(number)
    random.seed(number)  # of what the engine draws
    name = chosen.choice(NAMES)
    record, head = world.node(name), world.head
    key = name.encode() * 16
    what = chosen.choices(
        (
            "hello",
            "time",
            "replay",
            "forge",
            "epoch",
            "layout",
            "power",
            "suspect",
            "ask",
            "join",
            "wanted",
            "end",
            "off",
            "push",
        ),
        (60, 12, 2, 2, 1, 1, 2, 2, 2, 3, 2, 0.2, 1, 1),
    )[0]
    calm = chosen.random() < 0.9
    choice = {
        "run": "SYNC" if calm else "INIT",
        "image": "IDLE" if calm else "ACTIVE",
        "busy": "FREE" if chosen.random() < 0.9 else "BUSY",
        "epoch": what == "epoch",
        "sequence": 1 if what == "replay" else 10 + number,
        "old": int(chosen.random() < 0.05),
        "layout": what != "layout",
    }
    if what in ("hello", "replay", "forge", "epoch", "layout"):
        try:
            head.sync.receive(
                hello(world, name, b"x" * 32 if what == "forge" else key, mask, choice),
                world.client.getsockname(),
            )
        except WireError as error:
            return what, str(error), answers(world, name, key)
    elif what == "time":
        world.tick(chosen.choice((1, 1, 1, 3, 20)))
    elif what == "power":
        head.engine.post(record, Discovered({"power": chosen.choice(("ON", "OFF"))}, "the BMC"))
    elif what == "suspect":
        head.sync.suspect(record, chosen.choice((Loss.FIRMWARE, Loss.BMC_OFF)))
    elif what == "ask":
        head.sync.probe(record, told.append)
    elif what in ("join", "end"):
        head.sync.end(record)
        record.session = None
        record.last_seen = None
        record.address = None
        record.acked = 0
        if what == "join":
            record.session = Session(1 + NAMES.index(name) + 2 * number, key, "boot", world.clock())
    elif what == "wanted":
        record.wanted, record.cfg_revision = (
            (WantedImage(f"i{number}", "sha256:0", 1, {}),),
            record.cfg_revision + 1,
        )
    elif what == "off":
        order = None if record.care.order is not None else Order("cycle", False, "", 0.0)
        record.care = replace(record.care, order=order)
    elif what == "push":
        head.sync.push(record)
    return what, [answers(world, name, key), list(told)]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_it_does_what_the_long_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for way in ("short", "long"):
        (tmp_path / way).mkdir()
    async with opened(tmp_path / "short") as short, opened(tmp_path / "long") as long:
        worlds: tuple[tuple[World, list[Any]], ...] = ((short, []), (long, []))
        asked = {id(world.head.engine): 0 for world, _ in worlds}
        discover = Engine.discover

        def counted(engine: Engine, *args: Any) -> None:
            asked[id(engine)] += 1
            discover(engine, *args)

        monkeypatch.setattr(Engine, "discover", counted)
        for world, _ in worlds:
            for number, name in enumerate(NAMES, 1):
                world.node(name).session = Session(
                    number, name.encode() * 16, "boot", world.clock()
                )
        for number in range(seed * 1_000_000, seed * 1_000_000 + STEPS):
            one, other = (
                step(world, number, mask, told)
                for (world, told), mask in zip(worlds, (0, number), strict=True)
            )
            assert one == other, number
            for name in NAMES:
                assert seen(short, short.node(name)) == seen(long, long.node(name)), (number, one)
            assert short.head.sync.counters == long.head.sync.counters
            assert short.head.store.dirty.symmetric_difference(long.head.store.dirty) == set()
        heard = short.head.sync.counters["hello"]
        assert asked[id(long.head.engine)] == heard > STEPS / 4
        assert asked[id(short.head.engine)] < heard - 100, "the short way was hardly ever taken"
