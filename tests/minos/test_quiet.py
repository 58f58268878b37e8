"""An agent at rest leaves the machine to what computes there: it wakes up for its HELLOs, and for
what the kernel tells it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from patience import patience

from minos.agent.thermal.governor import Governors
from minos.agent.thermal.monitor import COOL_C, COOL_S, EVERY_S, NO_SENSORS_S, ThermalMonitor
from minos.agent.thermal.reading import Reading
from minos.survey.neighbours import Listener, wait_for_neighbours
from minos.syscalls import release_memory
from tests.minos.test_agent import Rig, rig
from tests.support.fake_head import UP

__all__ = ["rig"]

HELLO_S, HELLOS = 4.0, 3
WAIT_S = 60.0
ANNOUNCEMENT = bytes.fromhex(
    "0180c200000e5254000000fe88cc"  # to LLDP's group, from a switch, IEEE 802.1AB
    "0203077377"  # chassis "sw"
    "0403057031"  # port "p1"
    "060200780000"  # good for 120 s; that is all
)
AT_REST = {"revision": 1, "goal": {**UP, "image": "IDLE"}, "images": [], "requests": []}


def wakeups(pid: int) -> int:
    """How often the agent's loop has waited, so far."""
    text = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", text, re.M)
    assert found is not None
    return int(found[1])


def hellos(rig: Rig, count: int) -> None:
    """Waits for so many more."""
    before = len(rig.head.hellos)
    rig.head.wait(
        lambda: len(rig.head.hellos) >= before + count, (rig.head.hello_s + 2.0) * (count + 2)
    )


def test_an_agent_at_rest_wakes_up_for_its_hellos(rig: Rig) -> None:
    """One wait until it is due, one for the answer, and what the interpreter waits for itself; it
    looked around each second before."""
    rig.head.hello_s = HELLO_S
    rig.head.document = AT_REST
    rig.start()
    rig.head.wait_for(image="IDLE", run="SYNC")
    hellos(rig, 2)  # its API is served by then
    before = wakeups(rig.agent)
    hellos(rig, HELLOS)
    assert wakeups(rig.agent) - before <= 3 * HELLOS + 2


def anonymous_kb(pid: int) -> int:
    """The memory that a process has for itself, its part of what it shares with others included."""
    found = re.search(
        r"^Pss_Anon:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M
    )
    assert found is not None
    return int(found[1])


def test_an_agent_and_its_supervisor_are_small(rig: Rig) -> None:
    """By `minos/lean`, as in minOS. What files bring is not counted: others may have the same in
    memory."""
    rig.head.document = AT_REST
    rig.start()
    rig.head.wait_for(image="IDLE", run="SYNC")
    hellos(rig, 8)  # its API is served by then
    assert rig.process is not None
    assert anonymous_kb(rig.process.pid) + anonymous_kb(rig.agent) < 18_700  # without: 19,700


def test_hardware_that_was_found_is_told_when_it_was_written(rig: Rig) -> None:
    rig.head.hello_s = 60.0
    rig.head.document = AT_REST
    rig.start()
    rig.head.wait_for(image="IDLE", run="SYNC")
    new = rig.run / "hardware.json.new"
    new.write_text('{"cards": [], "modules": ["a"], "cold_plug_s": 0.1, "undriven": {}}')
    new.replace(rig.run / "hardware.json")
    rig.head.wait(lambda: any(event["kind"] == "node.hardware" for event in rig.head.events), 5.0)


def resident_kb() -> int:
    """The memory that this process holds."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1])


def test_what_the_start_needed_is_given_back() -> None:
    """The last of what was allocated stays, so that the allocator gives nothing back by itself."""
    kept = [bytes(1000) for _ in range(60_000)]
    before = resident_kb()
    del kept[:-1]
    release_memory()
    assert resident_kb() < before - 30_000


def test_hellos_come_in_time_on_a_node_whose_cores_are_all_full(rig: Rig) -> None:
    """Before the head holds the node for lost, which is after three that did not come."""
    rig.head.hello_s = 1.0
    rig.head.document = AT_REST
    rig.start()
    rig.head.wait_for(image="IDLE", run="SYNC")
    busy = [sys.executable, "-S", "-c", "while True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(2 * len(os.sched_getaffinity(0))):
            hog = stack.enter_context(subprocess.Popen(busy))
            stack.callback(hog.kill)
        first = len(rig.head.hellos)
        hellos(rig, 8)
        came = rig.head.heard_at[first:]
    assert max(later - before for before, later in itertools.pairwise(came)) < 3 * rig.head.hello_s


def next_look_s(*readings: Reading) -> float:
    """Seconds until the next look at these sensors."""

    def read() -> Sequence[Reading]:
        return readings

    governors = Governors(Path("/nowhere/governors.json"))
    return ThermalMonitor(lambda *words, **data: None, governors, read).round()


@pytest.mark.parametrize(
    ("readings", "seconds"),
    [
        ((), NO_SENSORS_S),
        ((Reading("cpu", 40.0, 80.0, 95.0),), COOL_S),
        ((Reading("cpu", 80.0 - COOL_C + 1, 80.0, 95.0),), EVERY_S),
        ((Reading("cpu", 40.0, 80.0, 95.0), Reading("disk", 50.0, None, 60.0)), EVERY_S),
        ((Reading("cpu", 90.0, 80.0, 95.0),), EVERY_S),
    ],
    ids=["none", "cool", "rather warm", "one is warm", "too warm"],
)
def test_sensors_are_looked_at_less_often_while_they_are_cool(
    readings: tuple[Reading, ...], seconds: float
) -> None:
    assert next_look_s(*readings) == seconds


@pytest.mark.root
def test_who_looks_for_hardware_is_told_by_the_kernel() -> None:
    """What has come is not looked for meanwhile: the clock is asked no second time, and nobody
    waits until the end."""
    card, clock, began = f"lcq{os.getpid()}", iter([0.0]), time.monotonic()
    pair = ("type", "veth", "peer", "name", f"{card}p")
    with contextlib.closing(Listener()) as listener:
        assert listener.hears_devices
        try:
            subprocess.run(["ip", "link", "add", card, *pair], check=True)
            assert wait_for_neighbours(listener, list, lambda: next(clock), WAIT_S) == []
            assert time.monotonic() - began < WAIT_S / 2
        finally:
            subprocess.run(["ip", "link", "del", card], check=True)


@contextlib.contextmanager
def cable(card: str, state: str) -> Iterator[str]:
    """A card of this name in this state ("up" or "down"), and the name of its other end, which is
    up."""
    other = f"{card}p"
    pair = ("type", "veth", "peer", "name", other)
    subprocess.run(["ip", "link", "add", card, *pair], check=True)
    try:
        subprocess.run(["ip", "link", "set", other, "up"], check=True)
        subprocess.run(["ip", "link", "set", card, state], check=True)
        yield other
    finally:
        subprocess.run(["ip", "link", "del", card], check=True)


def announce(card: str) -> None:
    """What a switch says at this end of a cable."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((card, 0))
        link.send(ANNOUNCEMENT)


@pytest.mark.root
def test_a_card_that_is_down_wakes_nobody_and_is_heard_when_it_is_up() -> None:
    """The kernel says of each socket on such a card that it is down. It was closed then and made
    anew, again and again: a node whose second card has no cable used up a quarter of a core."""
    card = f"lcd{os.getpid()}"
    with contextlib.closing(Listener()) as listener, cable(card, "down") as other:
        listener.listen_on([card])
        listener.hear(0)  # that it is down, and that it has come
        looks = 0
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            listener.listen_on([card])
            listener.hear(end - time.monotonic())
            looks += 1
        assert looks <= 3
        subprocess.run(["ip", "link", "set", card, "up"], check=True)
        assert heard_at(listener, card, other) == "p1"


@pytest.mark.root
def test_a_card_that_takes_the_name_of_another_is_heard() -> None:
    card = f"lce{os.getpid()}"
    with contextlib.closing(Listener()) as listener:
        for _ in range(2):
            with cable(card, "up") as other:
                assert heard_at(listener, card, other) == "p1"


def heard_at(listener: Listener, card: str, other: str) -> str:
    """The port that a switch at the other end names: it says so until it is heard."""
    end = time.monotonic() + patience(20)
    while time.monotonic() < end:
        listener.listen_on([card])
        announce(other)
        if received := listener.hear(0.2):
            return received[0].neighbour.port
    return "nothing was heard"
