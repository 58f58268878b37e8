"""A head over a rack of sixteen nodes in two domains, with witnesses that tests speak for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.guard.witness import Findings
from layercake.fleet.store import Record, Session
from layercake.kraken.converge import Discovered
from tests.support.world import World

RACK = """
defaults: {images: []}
groups:
  left: {domain: true}
  right: {domain: true}
nodes:
  n[0-7]: {groups: [left], mac: "52:54:00:00:00:10+", ip: 10.1.0.10+, bmc: {driver: ipmi, address: 10.2.0.10+}}
  m[0-7]: {groups: [right], mac: "52:54:00:00:01:10+", ip: 10.1.1.10+, bmc: {driver: ipmi, address: 10.2.1.10+}}
"""
LEFT, RIGHT = [f"n{i}" for i in range(8)], [f"m{i}" for i in range(8)]


class Said:
    """Witnesses who say what a test has them say."""

    def __init__(self) -> None:
        self.agent: bool | None = False
        self.arp: bool | None = False
        self.asked: list[str] = []

    async def collect(self, record: Record, now: float) -> Findings:
        """What they say."""
        self.asked.append(record.name)
        return Findings(now, "ON", self.agent, self.arp)


class Rack(World):
    """The world with sixteen nodes that are in sync."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.said = self.listen()

    def listen(self) -> Said:
        """Has the head ask a test's witnesses."""
        said = Said()
        self.head.part(Guard).silent.witnesses = said  # type: ignore[assignment]
        return said

    def speak(self, *names: str, busy: str = "FREE") -> None:
        """HELLOs of nodes."""
        for name in names:
            record = self.node(name)
            if record.session is None:
                record.session = Session(record.row, b"k" * 32, f"boot-{name}", self.clock())
            self.send(self.hello(name, busy=busy))

    def pass_time(self, seconds: float, *speaking: str) -> None:
        """Time passes; some nodes go on to say HELLO every second."""
        for _ in range(round(seconds)):
            self.speak(*speaking)
            self.tick(1)

    def started(self, *kinds: str) -> list[str]:
        """The attempts at steps that do something to a machine, by node."""
        harm = kinds or ("power-on", "power-off", "power-reset", "boot-arm")
        return [
            f"{e.node} {e.data['mutation']}"
            for e in self.head.store.events
            if e.kind == "mutation.started" and e.data["mutation"] in harm
        ]

    def told(self, kind: str) -> list[str]:
        """The texts of the head's and the nodes' events of a kind."""
        return [e.text for e in self.head.store.events if e.kind == kind]

    def sees_power(self, name: str, value: str) -> None:
        """The BMC says so."""
        self.head.engine.post(self.node(name), Discovered({"power": value}, "the BMC says so"))


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Rack]:
    found = Rack(tmp_path)
    try:
        found.open()
        await found.ops.inventory.apply(RACK, "rack.yaml", None, False)
        found.speak(*LEFT, *RIGHT)
        assert not found.started()
        yield found
    finally:
        await found.close_head()
        found.client.close()


__all__ = ["LEFT", "RACK", "RIGHT", "Rack"]
