"""Whether the head is in time: told once, with its cause apart from a head that stood still."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from layercake.features.guard.commands import alarms
from layercake.features.status.views import Observed, head_status
from layercake.fleet import events
from layercake.kernel.lag import AGAIN_S, BEAT_S, LATE_S, WINDOW_S, Lag
from tests.support.world import World

LOOKED_AT = """
import asyncio, json, sys, time
from layercake.kernel.lag import Lag

class Deaf:
    def event(self, *told, **data):
        pass

async def main():
    lag = Lag()
    task = asyncio.create_task(lag.run(Deaf()))
    await asyncio.sleep(1)
    print("here", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        pass
    while lag.most_s + lag.stood_s < 1.0:
        await asyncio.sleep(0.05)
    print(json.dumps([lag.most_s, lag.stood_s]), flush=True)

asyncio.run(main())
"""


def beats(world: World, lag: Lag, seconds: float, late: float, ran: float, since: float) -> float:
    """Beats for so many seconds, each so late; the time after them."""
    now = since
    while now < since + seconds:
        now += BEAT_S + late
        lag.beat(world.head.store, now, late, ran)
    return now


def told(world: World) -> list[str]:
    return [
        e.kind
        for e in world.head.store.events
        if e.kind in (events.HEAD_SLOW.name, events.HEAD_IN_TIME.name)
    ]


async def said(world: World) -> list[str]:
    """What `layercake explain` says of it."""
    return [
        line for line, _ in alarms(await head_status(world.head.part(Observed))) if "late" in line
    ]


async def test_a_head_that_is_late_says_so_once_and_is_an_alarm(world: World) -> None:
    lag = world.head.kernel.lag
    now = beats(world, lag, 2 * WINDOW_S, 0.001, 0.2, 0.0)
    assert lag.trouble == "" and told(world) == []
    now = beats(world, lag, 2 * WINDOW_S, 0.4, 0.6, now)
    assert lag.late_s > LATE_S and told(world) == ["head.slow"], "once, however long it is so"
    [line] = await said(world)
    assert line.startswith(
        "the head is late with all that it does: of the last 60 s it was held up for "
    )
    assert "0.4 s at once" in line
    now = beats(world, lag, 2 * WINDOW_S, 0.001, 0.2, now)
    assert told(world) == ["head.slow", "head.in-time"] and not await said(world)
    now = beats(world, lag, WINDOW_S, 0.4, 0.6, now)
    assert told(world).count("head.slow") == 1 and await said(world), (
        "one that comes and goes does not fill the history"
    )
    beats(world, lag, AGAIN_S, 0.4, 0.6, now)
    assert told(world).count("head.slow") == 2


def test_a_head_that_stood_still_is_not_late(world: World) -> None:
    lag = world.head.kernel.lag
    now = beats(world, lag, WINDOW_S, 0.001, 0.002, 0.0)
    lag.beat(world.head.store, now + 300.0, 300.0, 0.05)
    assert told(world) == [] and lag.trouble == "" and lag.most_s < 0.1
    assert lag.stood_s > 299 and lag.late.counts[-1] == 0


@pytest.mark.parametrize(("works", "stopped"), [(1.6, 0.0), (0.0, 1.6)])
def test_a_process_that_works_and_one_that_was_suspended_are_told_apart(
    works: float, stopped: float
) -> None:
    """A real one: its processor's time says which it was."""
    with subprocess.Popen(
        [sys.executable, "-c", LOOKED_AT, str(works)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        if stopped:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(stopped)
            os.kill(process.pid, signal.SIGCONT)
        most, stood = json.loads(process.stdout.readline())
    assert (most > 1.0 and stood < 0.5) if works else (most < 0.5 and stood > 1.0)


def test_a_loop_that_is_stuck_has_its_stack_in_the_log() -> None:
    source = LOOKED_AT.replace(
        "lag = Lag()", "import layercake.kernel.lag as module; module.STUCK_S = 0.5; lag = Lag()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, "1.6"], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("most recent call first") == 1 and "in main" in done.stderr


async def test_the_loop_of_a_head_is_looked_at(world: World) -> None:
    task = asyncio.create_task(world.head.kernel.lag.run(world.head.store))
    async with asyncio.timeout(60):
        while sum(world.head.kernel.lag.late.counts) < 2:
            await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
