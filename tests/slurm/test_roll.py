"""A roll under a real Slurm: slurmctld beside the head, slurmd inside the image containers of two
agents on this host."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.features.rolls.manager import Rolls

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostnode import HeadNamespace, HostNode
from sampleimages import slurm_image
from serviceimages import slurm_container

from layercake.agents import pki
from layercake.agents.settings import SyncSettings
from layercake.features.rolls.facts import NodePhase, Phase
from layercake.features.rolls.operations import RollStart
from layercake.fleet.store import Record
from layercake.head.head import Head
from layercake.head.settings import Settings, SlurmSettings
from tests.support.in_netns import in_netns
from tests.support.operations import Operations
from tests.support.slurmctld import Slurmctld

pytestmark = pytest.mark.root
KEY = b"a key for tests, and for nothing else; it is in the test images!" * 2
JOB = (
    "while cat /etc/layercake-image >> /shared/one; [ ! -e /shared/go ]; do sleep 0.2; done; "
    "echo end >> /shared/one"
)
"""Writes which image it runs in, again and again, until it is let go."""


class Site:
    """A head, its agents and a slurmctld, in namespaces of their own. To be used inside the
    head's."""

    def __init__(self, directory: Path, namespace: HeadNamespace) -> None:
        self.namespace = namespace
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.nodes = [HostNode(namespace, f"n{i}", 10 + i, directory / f"n{i}") for i in range(2)]
        self.slurm = Slurmctld(
            namespace.name,
            namespace.address,
            directory / "slurm",
            {n.name: n.ip for n in self.nodes},
            KEY,
        )
        home = directory / "head"
        (home / "boot").mkdir(parents=True)
        pki.create(home / "pki", namespace.address)
        self.settings = Settings(
            interface="br0",
            address=namespace.address,
            socket=str(home / "api.sock"),
            sync=SyncSettings(hello_s=2.0, dead_s=8.0),
            slurm=SlurmSettings(conf=str(self.slurm.conf), poll_s=0.5),
            sections={"images": {"privileges": {"*": ["mounts"]}}},
        )
        self.home = home
        self.head = Head(home, self.settings)
        self.api, self.operations = self.head.api(), Operations(self.head)

    async def __aenter__(self) -> Site:
        await self.head.start()
        await self.api.start()
        container = slurm_container(self.namespace.address)
        container["mounts"] = [
            *container["mounts"],  # type: ignore[misc]
            {"kind": "bind", "source": str(self.shared), "target": "/shared"},
        ]
        for version in ("slurm-1", "slurm-2"):
            await self.operations.images.add(slurm_image(version, KEY), version, container)
        wanted = ", ".join(
            f"{n.name}: {{mac: '{n.mac}', ip: {n.ip}, images: [slurm-1]}}"
            for i, n in enumerate(self.nodes)
        )
        await self.operations.inventory.apply(f"nodes: {{{wanted}}}", "test", None, False)
        await asyncio.to_thread(self.slurm.start)
        for node in self.nodes:
            record = self.record(node.name)
            token = self.head.joining.open(record, 60)
            await asyncio.to_thread(
                node.start,
                record.node.id,
                token,
                self.settings.head_url,
                self.home / "pki/ca.pem",
                f"{self.settings.address}:{self.settings.sync.port}",
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await asyncio.to_thread(node.stop)
        await asyncio.to_thread(self.slurm.stop)
        await self.api.stop()
        await self.head.stop()

    def record(self, name: str) -> Record:
        return self.head.store.named(name)

    def stand(self, roll: int, name: str) -> NodePhase:
        return self.head.part(Rolls).get(roll).nodes[self.record(name).node.id].state

    def runs(self, name: str) -> str:
        running = self.record(name).running
        return running[0].name if running and self.record(name).value("image") == "ACTIVE" else ""

    async def state(self, name: str) -> str:
        return await asyncio.to_thread(self.slurm.state, name)

    async def until(self, what: str, condition: Callable[[], Any], limit_s: float = 180.0) -> None:
        end = time.monotonic() + patience(limit_s)
        while not (found := condition()) or (asyncio.iscoroutine(found) and not await found):
            events = [f"{e.node} {e.kind} {e.text}" for e in self.head.store.events][-30:]
            told = [
                f"waited in vain: {what}",
                *events,
                self.slurm.log(),
                *(f"{node.name}:\n{node.log()[-2000:]}" for node in self.nodes),
            ]
            assert time.monotonic() < end, "\n".join(told)
            await asyncio.sleep(0.1)

    async def is_state(self, name: str, state: str) -> bool:
        return await self.state(name) == state


async def play(directory: Path, namespace: HeadNamespace) -> None:
    async with Site(directory, namespace) as site:
        for name in ("n0", "n1"):
            await site.until(f"slurmd of {name} answers", lambda: site.is_state(name, "IDLE"))  # noqa: B023
        site.slurm.submit("n0", JOB)
        await site.until("the prolog says BUSY", lambda: site.record("n0").value("busy") == "BUSY")
        roll = await site.operations.rolls.start(
            RollStart("n0,n1", "slurm-2", health_timeout_s=1.0, by="a test")
        )
        await site.until(
            "the idle node is through", lambda: site.stand(roll.id, "n1") is NodePhase.DONE
        )
        assert site.runs("n1") == "slurm-2" and site.runs("n0") == "slurm-1"
        assert (await site.state("n0")).split("+")[1:] == ["DRAIN"]
        waiting = site.slurm.submit("n0", "cat /etc/layercake-image > /shared/two")
        seen = len((site.shared / "one").read_text())
        await site.until("the job runs on", lambda: len((site.shared / "one").read_text()) > seen)
        assert site.stand(roll.id, "n0") is NodePhase.BUSY
        (site.shared / "go").touch()
        await site.until(
            "the roll is done", lambda: site.head.part(Rolls).get(roll.id).state is Phase.DONE
        )
        *lines, last = (site.shared / "one").read_text().split()
        assert set(lines) == {"slurm-1"} and last == "end", "the job was not disturbed"
        await site.until(f"job {waiting} ran on the new image", (site.shared / "two").exists)
        await site.until(
            "its output is whole", lambda: (site.shared / "two").read_text() == "slurm-2\n"
        )
        for name in ("n0", "n1"):
            await site.until(f"{name} is in use again", lambda: site.is_state(name, "IDLE"))  # noqa: B023
            await site.until(f"{name} is free", lambda: site.record(name).value("busy") == "FREE")  # noqa: B023
        kinds = [
            (e.node, e.kind)
            for e in site.head.store.events
            if e.kind.startswith("slurm.") and e.node
        ]
        assert sorted(kinds) == [
            (n, f"slurm.{k}") for n in ("n0", "n1") for k in ("drained", "resumed")
        ]


def test_a_running_job_is_not_interrupted_and_the_next_lands_on_the_new_image(
    tmp_path: Path,
) -> None:
    namespace = HeadNamespace("10.96.0.1")
    namespace.up()
    try:
        in_netns(namespace.name, lambda: play(tmp_path, namespace))
    finally:
        namespace.down()
