"""What is told of releases and what is refused, word for word: it is the evidence."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import sqlite3
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from patience import patience

from layercake.features.releases.table import KEPT
from layercake.fleet.guard_state import GuardState
from layercake.head.settings import DATABASE
from layercake.kraken.converge import Quarantine
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from tests.releases.conftest import DISK, Site

ERASE_FAILED = {
    "state": "failed",
    "disks": [{**DISK, "state": "failed", "why": "worn", "way": "", "verified": False}],
    "left": [],
}


async def begun(site: Site, *, force: bool = False) -> None:
    """A release of n0 by ann."""
    assert await site.world.ops.releases.begin("n0", force=force, by="ann") == ["n0"]


async def changed(site: Site, what: str, nodes: str = "n0") -> list[str]:
    """What bob does about the release of a node."""
    return await site.world.ops.releases.change(nodes, what, "bob")


def events_of(site: Site, kind: str) -> list[tuple[str, Any]]:
    """(text, data) of the events of a kind, of n0."""
    return [(e.text, e.data) for e in site.world.events_of("n0") if e.kind == f"release.{kind}"]


async def refused(what: Awaitable[Any], kind: type[LayercakeError] = Refused) -> tuple[str, str]:
    """What is refused with, and the hint."""
    with pytest.raises(kind) as caught:
        await what
    return caught.value.message, caught.value.hint


async def reread(site: Site) -> None:
    """Another head takes over what is on disk."""
    await site.world.restart()
    site.keeper = site.made()


# -- events


async def test_each_step_is_told_with_what_was_done(site: Site) -> None:
    site.machine.has_tpm = False
    await begun(site)
    release = site.shown()["id"]
    await site.ended()
    assert events_of(site, "begun") == [("by ann", {"release": release})]
    assert events_of(site, "step") == [
        ("hold: nothing runs on it", {"step": "hold"}),
        ("restart: minOS was started anew", {"step": "restart"}),
        ("erase: 1 disk", {"step": "erase"}),
        ("tpm: the machine has none (left)", {"step": "tpm"}),
        ("forget: keys", {"step": "forget"}),
        ("bmc-password: turned", {"step": "bmc-password"}),
        ("power-cycle: its memory was without power for 10 s", {"step": "power-cycle"}),
    ]
    assert events_of(site, "done") == [("1 disk erased", {})]
    assert not events_of(site, "failed") and not events_of(site, "unconfirmed")


async def test_what_is_released_by_force_says_so(site: Site) -> None:
    await begun(site, force=True)
    assert [text for text, _ in events_of(site, "begun")] == ["by ann, by force"]
    assert site.shown()["force"] is True
    await site.ended()


async def test_what_people_do_about_a_release_is_told(site: Site) -> None:
    site.machine.erased = ERASE_FAILED
    await begun(site)
    await site.ended()
    assert events_of(site, "failed") == [("erase: disk sda (M, S1): worn", {"step": "erase"})]
    assert await changed(site, "retry") == ["n0"]
    await site.ended()
    assert await changed(site, "abandon") == ["n0"]
    assert await changed(site, "free") == ["n0"]
    for kind in ("retried", "abandoned", "freed"):
        assert events_of(site, kind) == [("by bob", {})]
    assert not events_of(site, "done")


async def test_what_a_person_has_to_confirm_is_told_as_it_is_shown(site: Site) -> None:
    site.machine.speaks = "node"
    await begun(site)
    await site.ended()
    assert events_of(site, "unconfirmed") == [(site.world.ops.releases.of("n0")["held"], {})]
    assert await changed(site, "confirm") == ["n0"]
    assert events_of(site, "confirmed") == [("by bob", {})]
    assert events_of(site, "done") == [("1 disk erased", {})]


async def test_how_far_a_step_is_is_not_shown_of_the_next(site: Site) -> None:
    shown: dict[str, str] = {}

    def note_why(step: str) -> None:
        shown.setdefault(step, site.record.held.why if site.record.held else "")

    site.machine.keeps = note_why
    await begun(site)
    await site.ended()
    assert shown == {
        "cycle": "it is being released: restart, step 2 of 7",
        "erase": "it is being released: erase, step 3 of 7",
        "clear-tpm": "it is being released: tpm, step 4 of 7",
        "forget": "it is being released: forget, step 5 of 7",
        "password": "it is being released: bmc-password, step 6 of 7",
        "off": "it is being released: power-cycle, step 7 of 7",
    }


# -- holds


async def test_a_machine_that_is_released_is_ours(site: Site) -> None:
    site.record.care = GuardState()
    await begun(site)
    assert site.record.care.ours and not site.record.care.released, "it is on"
    await site.ended()


async def test_one_that_is_off_may_be_started(site: Site) -> None:
    site.machine.finds(power="OFF")
    site.record.care = GuardState()
    starts: list[bool] = []

    def push(record: Any) -> None:
        starts.append(record.care.released)

    site.machine.push = push  # type: ignore[method-assign]
    site.keeper = site.made()
    await begun(site)
    assert starts == [True] and site.record.care.ours


async def test_a_node_that_is_held_already_is_told_nothing_new_by_the_steps(site: Site) -> None:
    pushed: list[int] = []
    push = site.machine.push
    revision = site.record.cfg_revision

    def count(record: Any) -> None:
        pushed.append(record.cfg_revision)
        push(record)

    site.machine.push = count  # type: ignore[method-assign]
    site.keeper = site.made()
    await begun(site)
    assert pushed == [revision + 1]
    await site.ended()
    assert pushed[-1] == site.record.cfg_revision
    assert len(set(pushed)) == 4, "held, switched off, up again, and let go"


# -- what is refused


async def test_who_is_held_or_quarantined_is_not_released(site: Site) -> None:
    assert await refused(site.world.ops.releases.begin(" ", force=True, by="ann"), InputError) == (
        "cannot release: of which nodes?",
        "name them",
    )
    machine = site.record.machine
    quarantine = Quarantine("power-on", "no", 0.0, 5)
    site.record.machine = dataclasses.replace(machine, quarantine=quarantine)
    assert await refused(site.world.ops.releases.begin("n0", force=False, by="ann")) == (
        "cannot release n0: it is quarantined",
        "`layercake node clear n0` first, or --force",
    )
    site.record.machine = machine
    await site.world.ops.care.freeze("n0", "mine", "carl")
    message, _ = await refused(site.world.ops.releases.begin("n0", force=True, by="ann"))
    assert message == "cannot release n0: frozen by carl: mine"
    await site.world.ops.care.thaw("n0", "carl")
    await begun(site)
    held = site.record.held
    assert held is not None
    assert (await refused(site.world.ops.releases.begin("n0", force=True, by="ann")))[
        0
    ] == f"cannot release n0: {held.why}"
    with pytest.raises(Refused) as caught:
        site.keeper.begin(None, site.record, "ann", force=True)  # type: ignore[arg-type]
    assert caught.value.hint == "see `layercake node release --show n0`"


async def test_what_can_be_done_of_some_is_done_of_those(site: Site) -> None:
    site.machine.erased = ERASE_FAILED
    await begun(site)
    await site.ended()
    assert await refused(changed(site, "retry", "n1"), NotFound) == (
        "cannot find a release of n1",
        "",
    )
    assert await changed(site, "abandon", "n[0-1]") == ["n0"]
    assert await refused(changed(site, "free", "n1")) == (
        "cannot free the node: no release holds it",
        "",
    )


async def test_a_release_that_is_not_the_newest_is_changed_by_nobody(site: Site) -> None:
    await begun(site)
    node = site.record.node.id
    kept = site.keeper.kept
    with pytest.raises(NotFound) as caught:
        async with site.keeper.transaction() as transaction:
            kept.change(transaction, node, "x" * 50, lambda release: release)
    assert caught.value.message == f"cannot find release '{'x' * 40}' of {node}"
    with pytest.raises(Refused) as held:
        async with site.keeper.transaction() as transaction:
            kept.begin(transaction, node, "ann")
    assert held.value.message == f"cannot release {node}: {kept.why_held(node)}"
    await site.ended()


async def test_a_release_that_nobody_can_read_holds_its_node_until_a_person_frees_it(
    site: Site,
) -> None:
    await begun(site)
    await site.ended()
    with contextlib.closing(sqlite3.connect(site.world.directory / DATABASE)) as db, db:
        db.execute("UPDATE releases SET data = ?", (msgspec.json.encode({"id": 1}),))
    await reread(site)
    why = "the record of one of its releases cannot be read: nobody knows how far it was"
    held = site.record.held
    assert held is not None and (held.why, held.stuck) == (why, True)
    assert site.record.wanted == () and not site.keeper.kept.running()
    site.record.node = dataclasses.replace(site.record.node, images=())
    assert await changed(site, "free") == ["n0"]
    assert site.record.held is None
    site.machine.boot()
    await begun(site)
    assert (await site.ended())["state"] == "done"


async def test_the_last_ten_releases_of_a_node_are_kept(site: Site) -> None:
    assert KEPT == 10
    seen = []
    for _ in range(11):
        site.machine.boot()
        await begun(site)
        seen.append((await site.ended())["id"])
    shown = [one["id"] for one in site.world.ops.releases.of("n0")["releases"]]
    assert shown == seen[:0:-1]
    await reread(site)
    assert [one["id"] for one in site.world.ops.releases.of("n0")["releases"]] == shown


# -- what is in the head's log


class Gone(BaseException):
    """The head's process ends."""


async def test_a_step_that_is_cut_short_is_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def goes(step: str) -> None:
        raise Gone

    site.machine.keeps = goes
    await begun(site)
    task = await next_task(site)
    with pytest.raises(Gone):
        await task
    await asyncio.sleep(0)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name == "layercake.releases"
    node = site.record.node.id
    assert record.getMessage() == f"a step of a release of {node} was cut short"
    assert record.exc_info is not None and node not in site.keeper.tasks


async def test_releases_that_are_left_to_the_next_head_are_no_error(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.machine.silent = 1 << 30
    await begun(site)
    await next_task(site)
    await site.keeper.stop()
    await asyncio.sleep(0)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR] and not site.keeper.tasks


async def test_one_that_cannot_go_on_waits_and_says_why(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(site, "sleep", sleep)
    site.keeper = site.made()
    await begun(site)
    task = await next_task(site)
    site.keeper.kept.node_removed(site.record.node.id)
    async with asyncio.timeout(patience(60.0)):
        await task
    assert "the release of n0 waits: cannot find a release of n0" in [
        r.getMessage() for r in caplog.records
    ]
    assert waited[-1] == 2.0


async def next_task(site: Site) -> asyncio.Task[None]:
    """Who carries the release out, from now on."""
    site.keeper.advance()
    return next(iter(site.keeper.tasks.values()))
