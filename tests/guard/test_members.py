"""What is counted along is what a look at all nodes finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgspec

from layercake.features.guard.members import Members
from layercake.features.guard.outage import SITE
from layercake.fleet.store import Record
from layercake.kraken.facts import Quarantine
from tests.guard.conftest import LEFT, RIGHT, Rack


def change(rack: Rack, record: Record, luck: random.Random) -> None:
    """Something that moves a node in or out."""
    match luck.randrange(4):
        case 0:
            record.care = msgspec.structs.replace(record.care, up=luck.random() < 0.5)
        case 1:
            out = Quarantine("power-on", "its BMC is dead", 0.0, 3) if luck.random() < 0.5 else None
            record.machine = replace(record.machine, quarantine=out)
        case 2:
            record.node = replace(
                record.node, domains=tuple(luck.sample(("left", "right", "top"), luck.randrange(3)))
            )
        case _:
            if luck.random() < 0.1:
                rack.head.store.remove(record)
                return
    rack.head.store.mark(record)


async def test_as_many_as_a_look_at_all_nodes_finds(rack: Rack) -> None:
    members, luck = Members(rack.head.store), random.Random(7)
    for _ in range(200):
        alive = [r for name in (*LEFT, *RIGHT) if (r := rack.head.store.lookup(name)) is not None]
        for record in luck.sample(alive, min(len(alive), luck.randrange(4))):
            change(rack, record, luck)
        should = {
            r.node.id: (SITE, *r.node.domains)
            for r in rack.head.store
            if r.care.up and r.machine.quarantine is None
        }
        assert members.update() == Counter(
            domain for domains in should.values() for domain in domains
        )
        since = {r.node.id: luck.random() for r in alive if luck.random() < 0.5}
        found = members.silent(since)
        assert found == {
            d: {k: since[k] for k, domains in should.items() if d in domains and k in since}
            for d in found
        }
        assert set(found) == {
            domain for key, domains in should.items() if key in since for domain in domains
        }
    assert len(rack.head.store) < len(LEFT) + len(RIGHT), "some were removed"
