"""Clocks that step, by an hour or by years, in both directions: of the head while it runs, between
two lives, of a node."""

from __future__ import annotations

import datetime
import ssl
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from imageapi.events import EXITED
from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.agents.joining import Claim
from layercake.base.clock import steady_clock
from layercake.features.nodes.views import node_view
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.features.status.views import Observed, head_status
from layercake.fleet import events
from layercake.kraken.converge import BACKOFF_CAP_S
from minos import init
from minos.agent.http.client import tls_context
from tests.support.rollnodes import a_site
from tests.support.world import World

HOUR, YEARS = 3600.0, 20 * 365 * 86400.0
STEPS = [-YEARS, -HOUR, HOUR, YEARS]


@pytest.fixture
def world(world: World) -> World:
    """A time from which one can go back by years."""
    world.clock.now += 1.8e9
    return world


@pytest.mark.parametrize("step_s", STEPS)
def test_the_heads_clock_does_not_step_with_the_systems(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    real, clock = time.time, steady_clock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    assert 0 <= clock() - before < 60


@pytest.mark.parametrize("step_s", STEPS)
async def test_history_is_told_by_the_clock_that_people_see(world: World, step_s: float) -> None:
    """A head that was started with a dead clock tells the right time once that is set; deadlines
    are by the steady clock."""
    world.head.store.wall = lambda: world.clock() + step_s
    token = world.head.joining.open(world.node("n0"), 60)
    world.head.store.event(None, events.HEAD_STARTED, "something")
    assert world.head.store.events[-1].at == world.clock() + step_s
    world.clock.now += 60
    claim = Claim(token, "boot", "52:54:00:00:00:10", "10.1.0.10")
    assert world.head.joining.claim(world.node("n0"), claim).joined == world.clock()


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_head_that_comes_back_in_another_time_touches_no_healthy_node(
    world: World, step_s: float
) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    world.received("n0")
    newest = max(e.id for e in world.head.store.events)
    world.clock.now += step_s
    await world.restart()
    record = world.node("n0")
    world.tick(5)
    for _ in range(60):
        world.send(world.hello("n0"))
        world.tick(1)
    assert record.value("run") == "SYNC" and record.machine.goal.met(record.machine.state)
    assert [
        e.text
        for e in world.events_of(record.name)
        if e.kind == "mutation.started" and e.id > newest
    ] == []
    view = node_view(record, world.clock(), world.head.table)
    assert (
        view["since_s"] >= 0
        and (await head_status(world.head.part(Observed)))["nodes"]["converged"] == 1
    )


@pytest.mark.parametrize("step_s", STEPS)
async def test_what_was_given_up_stays_so_and_what_waits_does_not_wait_for_years(
    world: World, step_s: float
) -> None:
    record = world.node("n0")
    while record.machine.not_before <= world.clock():
        world.tick(1)
    await world.head.database.flush(world.head.store)
    failures = dict(record.machine.attempts)
    world.clock.now += step_s
    await world.restart()
    record = world.node("n0")
    assert record.machine.attempts == failures
    assert record.machine.not_before - world.clock() <= BACKOFF_CAP_S
    for _ in range(100):
        if record.machine.quarantine is not None:
            break
        world.tick(60)
    assert record.machine.quarantine is not None
    world.clock.now += step_s
    await world.restart()
    world.tick(60)
    record = world.node("n0")
    assert record.machine.quarantine is not None, "time alone is no reason to try again"


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_roll_goes_on_in_another_time(world: World, step_s: float) -> None:
    file = world.directory / "image.squashfs"
    file.write_bytes(b"hsqs web")
    world.head.part(ImageStore).add(file, "web", {"systemd": False})
    world.attach("n0")
    world.send(world.hello("n0"))
    roll = await world.ops.rolls.start(RollStart("n0", "web"))
    await world.head.part(Rolls).advance()
    world.clock.now += step_s
    await world.restart()
    await world.head.part(Rolls).advance()
    found = world.head.part(Rolls).get(roll.id)
    assert not found.over
    deadlines = [n.deadline for n in found.nodes.values() if n.deadline is not None]
    assert all(0 <= d - world.clock() <= 86400 for d in deadlines)


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_roll_that_fails_after_a_step_says_what_the_node_says(
    tmp_path: Path, step_s: float
) -> None:
    async with a_site(tmp_path, 1) as site:
        site.world.clock.now += 1.8e9
        await site.step()
        site.world.head.store.event(site.world.node("n0"), EXITED, "another image: exit status 1")
        site.agents["n0"].bad = "two"
        roll = await site.start("n0", "two")
        site.world.head.store.wall = lambda: site.world.clock() + step_s
        assert (await site.until_over(roll.id))["state"] == "failed"
        assert site.roll(roll.id)["nodes"][0]["trouble"] == "", (
            "what was before it began is not its trouble"
        )
        site.world.head.store.event(site.world.node("n0"), EXITED, "image two: exit status 7")
        assert site.roll(roll.id)["nodes"][0]["trouble"] == "image two: exit status 7"


# -- nodes


@pytest.mark.parametrize(
    ("off_s", "sets"),
    [
        (0.0, False),
        (200.0, False),
        (-200.0, False),
        (HOUR, True),
        (-HOUR, True),
        (YEARS, True),
        (-YEARS, True),
    ],
)
def test_a_node_sets_a_clock_that_is_far_off(
    monkeypatch: pytest.MonkeyPatch, off_s: float, sets: bool
) -> None:
    said: list[tuple[int, float]] = []
    monkeypatch.setattr(time, "clock_settime", lambda clock, value: said.append((clock, value)))
    told = init.EARLIEST + 1000
    text = init.set_clock(told, told + off_s)
    assert said == ([(time.CLOCK_REALTIME, told)] if sets else [])
    assert ("is set" in text) == sets


def test_a_node_does_not_believe_a_head_whose_clock_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "clock_settime", lambda *_: pytest.fail("it was set"))
    init.set_clock(5, init.EARLIEST + 1000.0)


@pytest.mark.parametrize("step_s", STEPS)
def test_a_node_trusts_its_head_whatever_either_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """The head's authority was made years from now, or is over: a handshake with the agent's own
    context."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=step_s)
    shifted = SimpleNamespace(
        datetime=SimpleNamespace(now=lambda zone: now),
        UTC=datetime.UTC,
        timedelta=datetime.timedelta,
    )
    monkeypatch.setattr(pki, "datetime", shifted)
    pki.create(tmp_path, "10.99.0.1")
    pki.create(tmp_path / "other", "10.99.0.1")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    shake(tls_context(tmp_path / "ca.pem"), served, "10.99.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tls_context(tmp_path / "ca.pem"), served, "10.99.0.2")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tls_context(tmp_path / "other" / "ca.pem"), served, "10.99.0.1")


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A handshake without a network."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
