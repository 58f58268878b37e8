"""What viewers may have worked out: in one process beside the head, for so long, in so much memory,
one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imageapi.build import contents
from imageapi.build.compare import COMPARING
from layercake.base.process import THRESHOLDS
from layercake.base.quotas import RateLimiter
from layercake.features.inventory.reading import MISTAKES, Readers, is_small
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused
from layercake.moduleapi import sandboxed_job, worker_process
from layercake.moduleapi.event_loop import slices
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob
from tests.support.api import served, token
from tests.support.world import INVENTORY, World

MANY = INVENTORY + '  x[0-2999]: {mac: "52:54:00:01:00:00+", ip: 10.2.0.1+}\n'
STAYS = "tests.support.greedy_stays"
BOUNDS = Bounds(seconds=30.0, memory=1 << 30, answer=1 << 20)
SHORT = Bounds(seconds=3.0, memory=1 << 30, answer=1 << 20)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch, bounds: Bounds) -> None:
    """For what never answers, the seconds of a processor are those of the clock, too."""
    if bounds is SHORT:
        monkeypatch.setattr(sandboxed_job, "PATIENCE", 1.0)


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended
            found += map(int, (task / "children").read_text().split())
    return found


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def outcomes(work: list[Any]) -> tuple[list[Any], int]:
    """What came of all of it, and how many processes there were at most."""
    others = set(children())  # those of other tests' racks
    tasks, most = [asyncio.ensure_future(w) for w in work], 0
    while not all(t.done() for t in tasks):
        most = max(most, len(set(children()) - others))
        await asyncio.sleep(0.1)  # a look at all threads of a whole test run is work, too
    return [t.exception() or t.result() for t in tasks], most


@pytest.fixture
def frozen() -> Iterator[None]:
    """The collector of garbage passes over what was there before, as in a head that has started:
    here that is a whole run."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
async def test_many_plans_are_one_process_and_the_rest_is_refused(world: World) -> None:
    own, of_others = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
    assert not world.head.part(Readers).pids
    found, most = await outcomes([world.ops.inventory.plan(MANY, "many.yaml") for _ in range(12)])
    plans = [f for f in found if isinstance(f, dict)]
    assert len(plans) == 4 and all(len(p["plans"]) == 3000 for p in plans) and most == 1
    assert sum(isinstance(f, Refused) for f in found) == 8
    assert len(world.head.part(Readers).pids) == 1, "it stays"
    await world.head.part(Readers).close()
    aside, here = cpu(resource.RUSAGE_CHILDREN) - of_others, cpu(resource.RUSAGE_SELF) - own
    assert aside > 0.3 * here, "much of the work is not the head's"


async def test_those_who_look_do_not_keep_an_apply_waiting(world: World) -> None:
    plans = [asyncio.create_task(world.ops.inventory.plan(MANY, "many.yaml")) for _ in range(8)]
    await asyncio.sleep(0.05)
    assert not all(plan.done() for plan in plans)
    done = await world.ops.inventory.apply(
        INVENTORY.replace("10.1.0.11", "10.1.0.12"), "t.yaml", None, False
    )
    assert done["changed"] == ["n1"] and not all(plan.done() for plan in plans)
    for plan in plans:
        plan.cancel()
    await asyncio.gather(*plans, return_exceptions=True)


async def test_who_may_change_the_site_does_not_wait_for_who_looks(world: World) -> None:
    headers = await token(world.head, "ann", "operator")
    body = {"yaml": INVENTORY, "file": "t.yaml"}
    async with (
        world.head.part(Readers).plans.turn(),
        served(world.head, local=False) as client,
        asyncio.timeout(60),
        client.post("/v1/inventory/plan", json=body, headers=headers) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_plans_of_viewers_alone_are_held_to_a_part_of_the_loop(
    world: World, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever takes longer than a slice is charged for: reading, planning, and the answer."""
    worked: list[float] = []
    charge = RateLimiter.charge

    def counted(self: RateLimiter, key: str, cost: float = 1.0) -> float:
        if key == "plans":
            worked.append(cost)
            return 0.0
        return charge(self, key, cost)

    monkeypatch.setattr(RateLimiter, "charge", counted)
    monkeypatch.setattr(
        slices, "SLICE_S", slices.SLICE_S / 10
    )  # a fast machine needs two of 1.5 ms
    headers = await token(world.head, "ann", role)
    text = INVENTORY + "".join(
        f"  x{n}: {{mac: '52:54:00:01:{n // 100:02}:{n % 100:02}', "
        f"ip: 10.2.{n // 100}.{n % 100}}}\n"
        for n in range(100, 380)
    )
    assert is_small(text), "the head reads it itself"
    async with (
        served(world.head, local=False) as client,
        client.post("/v1/inventory/plan", json={"yaml": text}, headers=headers) as answer,
    ):
        found = await answer.json()
    assert answer.status == 200 and len(found["changes"]) == 280
    assert found["changes"][0]["action"] == "add" and found["changes"][0]["fields"]["ip"]
    assert (len(worked) > 3) == (role == "viewer"), worked


@pytest.mark.usefixtures("frozen")
async def test_the_head_goes_on_while_ten_thousand_nodes_are_planned(world: World) -> None:
    text = INVENTORY + '  x[0-9999]: {mac: "52:54:00:01:00:00+", ip: 10.2.0.1+, images: []}\n'
    gaps, plan = [0.0], asyncio.create_task(world.ops.inventory.plan(text, "many.yaml"))
    while not plan.done():
        since = time.thread_time()
        await asyncio.sleep(0.001)
        gaps.append(time.thread_time() - since)
    assert len(plan.result()["plans"]) == 10_000
    assert max(gaps) < 0.5, (
        "seconds of the processor that the head's loop was taken for at a stretch; no other "
        "process counts"
    )


async def test_a_small_text_that_stands_for_much_is_read_elsewhere_and_ends(world: World) -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "a0: &a0 [x, x]\n" + "\n".join(levels)
    assert (
        not is_small(bomb)
        and not is_small("nodes: {n[0-65000]: {}}")
        and not is_small("nodes: {n[1,2][1,2]: {}}")
    )
    assert is_small(INVENTORY)
    own = cpu(resource.RUSAGE_SELF)
    with pytest.raises(LayercakeError, match="cannot"):
        await world.ops.inventory.plan(bomb, "bomb.yaml")
    assert cpu(resource.RUSAGE_SELF) - own < 1.0


async def test_mistakes_and_nonsense_are_told_the_same_from_there(world: World) -> None:
    mistakes = "defaults: {" + ", ".join(f"k{n}: {{v: 0-0}}" for n in range(3000)) + "}\n"
    with pytest.raises(InventoryErrors) as caught:
        await world.ops.inventory.plan(mistakes, "bad.yaml")
    assert len(caught.value.problems) == MISTAKES + 1 and caught.value.problems[0].line == 1
    assert str(3000 - MISTAKES) in caught.value.problems[-1].message
    for text in ("x" * (17 << 20), "nodes: \ud800"):
        with pytest.raises(InputError, match="cannot use bad"):
            await world.ops.inventory.plan(text, "bad.yaml")


async def test_it_is_the_same_plan_there_and_here(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        INVENTORY.replace("10.1.0.11", "10.1.0.12")
        + '  new: {mac: "52:54:00:00:00:19", ip: 10.1.0.19}\n'
    )
    here = await world.ops.inventory.plan(text, "t.yaml")
    monkeypatch.setattr("layercake.features.inventory.reader.is_small", lambda text: False)
    assert await world.ops.inventory.plan(text, "t.yaml") == here
    assert [c["node"] for c in here["changes"]] == ["n1", "new"]


async def test_many_comparisons_are_one_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"hsqs" + name.encode() * 100)
        await world.ops.images.add(tmp_path / name, name, {})
    found, most = await outcomes([world.ops.images.difference("one", "two") for _ in range(15)])
    assert sum(isinstance(f, Refused) for f in found) == 11 and most <= 1, (
        "one may be over before it is counted"
    )
    assert sum(isinstance(f, OperationFailed) for f in found) == 4, "these are no images"


def test_a_comparison_lists_so_much_and_counts_the_rest() -> None:
    many = {
        f"f{n}": contents.Entry("file", "644", "0:0", 1, "x") for n in range(contents.LISTED + 7)
    }
    found = contents.difference(contents.Contents({}, {}), contents.Contents(many, {}))
    assert (len(found["files"]["added"]), found["left_out"]) == (contents.LISTED, 7)


@pytest.mark.parametrize(
    ("module", "data", "bounds", "why"),
    [
        ("tests.support.greedy", b"sleep", SHORT, "not done in 3 s"),
        ("tests.support.greedy", b"mute", SHORT, "not done in 3 s"),
        ("tests.support.greedy", b"child", SHORT, "not done in 3 s"),
        ("tests.support.greedy", b"memory", BOUNDS, "ended with status"),
        ("tests.support.greedy", b"talk", BOUNDS, "larger than 1 MiB"),
        ("tests.support.greedy", b"die", BOUNDS, "ended with status"),
        ("tests.support.greedy", b"deaf" + bytes(8 << 20), BOUNDS, "ended with status"),
    ],
)
@pytest.mark.usefixtures("hurried")
async def test_a_process_that_wants_too_much_is_ended(
    module: str, data: bytes, bounds: Bounds, why: str
) -> None:
    before = set(children())
    with pytest.raises(OperationFailed, match=why):
        await SandboxedJob("do it", bounds, urgent=True).run(module, data=data)
    assert set(children()) == before, "nothing is left of it"
    assert not [
        p for p in Path("/proc").iterdir() if p.name.isdigit() and b"greedy-child" in _command(p)
    ]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("data", "bounds", "why"),
    [
        (b"sleep", SHORT, "not done in 3 s"),
        (b"child", SHORT, "not done in 3 s"),
        (b"memory", BOUNDS, "ended with status"),
        (b"long", BOUNDS, "larger than 1 MiB"),
        (b"die", BOUNDS, "ended with status 3"),
        (b"talk", BOUNDS, "larger than 1 MiB"),
    ],
)
@pytest.mark.usefixtures("hurried")
async def test_one_that_stays_and_wants_too_much_is_ended_and_the_next_question_starts_another(
    data: bytes, bounds: Bounds, why: str
) -> None:
    aside = SandboxedJob("do it", bounds, urgent=True)
    before = set(children())
    try:
        with pytest.raises(OperationFailed, match=why):
            await aside.request(STAYS, data)
        assert set(children()) == before and not aside.pids, "nothing is left of it"
        assert not [
            p
            for p in Path("/proc").iterdir()
            if p.name.isdigit() and b"greedy-child" in _command(p)
        ]
        aside = SandboxedJob("do it", BOUNDS, urgent=True)  # who is behind waits for a busy machine
        assert await aside.request(STAYS, b"count") == b"1"
    finally:
        await aside.close()


async def test_one_that_stays_does_so_beside_a_head_that_is_larger() -> None:
    large, aside = (
        b"x" * (worker_process.GROWN + (64 << 20)),
        SandboxedJob("do it", BOUNDS),
    )  # as a head of 100,000 nodes
    try:
        assert [await aside.request(STAYS, b"count") for _ in range(2)] == [b"1", b"2"] and large
    finally:
        await aside.close()


async def test_one_that_stays_answers_one_question_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BMC_PASSWORD", "hunter2")
    aside = SandboxedJob("do it", BOUNDS)
    try:
        assert [await aside.request(STAYS, b"count") for _ in range(3)] == [b"1", b"2", b"3"]
        (first,) = aside.pids
        assert await aside.request(STAYS, bytes(8 << 20)) == b"8388608" and aside.pids == [first]
        assert b"hunter2" not in await aside.request(STAYS, b"environment")
        assert await aside.request(STAYS, b"grow") == b"6", (
            "and ends, for it has had more memory than it may keep"
        )
        assert await aside.request(STAYS, b"count") == b"1" and aside.pids != [first]
        (second,) = aside.pids
        os.kill(second, signal.SIGKILL)
        with pytest.raises(OperationFailed, match="ended with status -9"):
            await aside.request(STAYS, b"count")
        assert await aside.request(STAYS, b"count") == b"1"
        asking = asyncio.create_task(aside.request(STAYS, b"sleep"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await aside.request(STAYS, b"count") == b"1", "who leaves is not worked for"
    finally:
        await aside.close()
    assert not aside.pids


async def test_one_that_is_prepared_answers_the_first_question() -> None:
    aside = SandboxedJob("do it", BOUNDS)
    try:
        await aside.prepare(STAYS)
        (first,) = aside.pids
        assert await aside.request(STAYS, b"count") == b"1"
        await aside.prepare(STAYS)
        assert await aside.request(STAYS, b"count") == b"2" and aside.pids == [first]
    finally:
        await aside.close()


async def test_one_that_nobody_asks_ends_by_itself() -> None:
    aside, before = SandboxedJob("do it", BOUNDS), set(children())
    try:
        assert await aside.request(STAYS, b"rest") == b"1"
        while set(children()) != before:
            await asyncio.sleep(0.01)
        assert await aside.request(STAYS, b"count") == b"1"
    finally:
        await aside.close()


async def test_it_knows_none_of_the_heads_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC_PASSWORD", "hunter2")
    said = await SandboxedJob("do it", BOUNDS).run("tests.support.greedy", data=b"environment")
    assert b"PATH" in said and b"hunter2" not in said
    assert COMPARING.waiting <= 4 and os.environ["BMC_PASSWORD"] == "hunter2"


async def test_who_leaves_is_not_worked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker asks and goes, and asks again."""
    monkeypatch.setattr("layercake.features.inventory.reading.SMALL", 0)
    began = asyncio.Event()

    async def counted(self: SandboxedJob, module: str, data: bytes) -> bytes:
        began.set()
        await asyncio.sleep(600)
        return b""

    monkeypatch.setattr(SandboxedJob, "request", counted)
    async with served(world.head, local=True) as client:
        for _ in range(6):  # more than may wait: each begins, as the one before it was given up
            began.clear()
            asking = asyncio.create_task(client.post("/v1/inventory/plan", json={"yaml": MANY}))
            await asyncio.wait_for(began.wait(), 10)
            asking.cancel()
            await asyncio.wait([asking])
