"""The witnesses: what they are asked, and what counts as an answer."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from layercake.agents.client import NodeLink
from layercake.features.guard import witness
from layercake.features.guard.witness import Findings, Witnesses, neighbour
from layercake.fleet.store import Record, Session
from layercake.kraken.errors import Unreachable
from tests.guard.conftest import Rack
from tests.support.in_netns import in_new_netns

STATES = {
    "10.9.0.1": ("reachable", True),
    "10.9.0.2": ("delay", True),
    "10.9.0.3": ("probe", True),
    "10.9.0.4": ("permanent", True),
    "10.9.0.5": ("failed", False),
    "10.9.0.6": ("incomplete", False),
    "10.9.0.7": ("stale", None),
    "10.9.0.8": ("", None),
}
"""What the kernel holds a neighbour for, and what that says."""


def neighbours() -> dict[str, bool | None]:
    """What the kernel says of each, on a link of its own."""
    for command in ("link add link0 type veth peer name link1", "link set link0 up"):
        subprocess.run(["ip", *command.split()], check=True)
    for slow in ("delay_first_probe_time", "ucast_solicit", "mcast_solicit"):
        Path(f"/proc/sys/net/ipv4/neigh/link0/{slow}").write_text("600")
    return {address: asked(address, state) for address, (state, _) in STATES.items()}


def asked(address: str, state: str) -> bool | None:
    """What the kernel says of a neighbour that it takes to be in this state. It is told so just
    before, as it finds out itself which of them are there, in its time."""
    if state:
        command = f"ip neigh replace {address} dev link0 nud {state}"
        if state not in ("failed", "incomplete"):
            command += " lladdr 52:54:00:00:00:01"
        subprocess.run(command.split(), check=True)
    return asyncio.run(neighbour(address))


def test_what_the_kernel_knows_of_a_neighbour_says_whether_it_lives() -> None:
    assert in_new_netns(neighbours) == {address: lives for address, (_, lives) in STATES.items()}


@pytest.mark.parametrize("printed", ["", "no JSON", "[]"])
async def test_a_kernel_that_says_nothing_knows_nothing(
    printed: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n" if printed else "#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert (await neighbour("10.9.0.1")) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert (await neighbour("10.9.0.1")) is None


def test_what_was_found_is_told_in_words() -> None:
    assert Findings(0.0, "OFF", True, False).text == (
        "its BMC: OFF; its agent's TLS port: answers; ARP: no answer"
    )
    assert Findings(0.0, "ON", None, None).text == (
        "its BMC: ON; its agent's TLS port: not asked; ARP: not asked"
    )


class Link:
    """An agent that answers, or does not, or takes its time."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def answers(self, record: Record) -> bool:
        """None: for ever."""
        self.asked.append(record.name)
        if self.answer is None:
            await asyncio.Event().wait()
        return bool(self.answer)


async def bmc_is_on(record: Record) -> str:
    return "ON"


async def bmc_is_dead(record: Record) -> str:
    raise Unreachable("cannot reach the BMC: no answer", hint="is it plugged in?")


async def bmc_says_nothing(record: Record) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.fixture
def arp(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the kernel was asked of, and knows nothing of."""
    addresses: list[str] = []

    async def known(address: str) -> bool | None:
        addresses.append(address)
        return None

    monkeypatch.setattr(witness, "neighbour", known)
    monkeypatch.setattr(witness, "LIMIT_S", 0.01)
    return addresses


@pytest.mark.parametrize(
    ("bmc", "said"),
    [
        (bmc_is_on, "ON"),
        (bmc_is_dead, "cannot reach the BMC: no answer"),
        (bmc_says_nothing, "no answer yet"),
    ],
)
@pytest.mark.parametrize(("answer", "agent"), [(True, True), (False, False), (None, False)])
async def test_all_are_asked_and_none_is_waited_for_for_ever(
    rack: Rack, arp: list[str], bmc: Any, said: str, answer: bool | None, agent: bool
) -> None:
    record = rack.node("n0")
    record.api_port = 7000
    link = Link(answer)
    found = await Witnesses(cast(NodeLink, link), bmc).collect(record, 5.0)
    assert found == Findings(5.0, said, agent, None)
    assert link.asked == ["n0"] and arp == [record.node.ip]


@pytest.mark.parametrize(
    "missing", [{"session": None}, {"address": None}, {"api_port": 0}], ids=lambda m: next(iter(m))
)
async def test_an_agent_that_nobody_knows_how_to_reach_is_not_asked(
    rack: Rack, arp: list[str], missing: dict[str, Any]
) -> None:
    record = rack.node("n0")
    record.session = Session(7, b"k" * 32, "boot-1", 0.0)
    record.api_port = 7000
    record.address = ("127.0.0.1", 7)
    for name, value in missing.items():
        setattr(record, name, value)
    link = Link(True)
    found = await Witnesses(cast(NodeLink, link), bmc_is_on).collect(record, 5.0)
    assert found.agent is None and not link.asked
