"""A release as a value and as it is shown: every transition, and what people read of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from layercake.features.releases.manager import BY_HEAD
from layercake.features.releases.record import (
    MAX_DETAIL,
    PROOF,
    STEPS,
    ErasedDisk,
    Release,
    ReleaseStep,
    Witness,
    abandoned,
    began,
    confirmed,
    ended,
    freed,
    retried,
)
from layercake.features.releases.views import release_view
from layercake.kraken.errors import Refused

NEW = Release(id="r1", node="n1", by="ann", asked=100.0)
DISK = ErasedDisk(model="M", serial="S", way="format", seconds=1.5, size=7, verified=True)


def after(count: int, release: Release = NEW) -> Release:
    """With so many steps done."""
    for number in range(count):
        release = ended(began(release, 150.0 + number), "done", 160.0 + number)
    return release


def spoken_for(release: Release, step: str, witness: Witness) -> Release:
    """With another witness of a step, of the BMC's for all others."""
    return msgspec.structs.replace(
        release,
        steps=tuple(
            msgspec.structs.replace(one, witness=witness if one.name == step else "bmc")
            for one in release.steps
        ),
    )


RUNNING = began(after(1), 200.0)
FAILED = ended(RUNNING, "failed", 210.0, "no agent")
DONE = after(len(STEPS))
ABANDONED = abandoned(FAILED, "bob", 220.0)
FREED = freed(ABANDONED, "eve")
ALONE = spoken_for(DONE, "erase", "node")


@pytest.mark.parametrize(
    ("release", "state", "step", "why"),
    [
        (NEW, "running", "hold", "it is being released: hold, step 1 of 7"),
        (RUNNING, "running", "restart", "it is being released: restart, step 2 of 7"),
        (FAILED, "failed", "", "its release failed at restart: no agent"),
        (retried(FAILED), "running", "restart", "it is being released: restart, step 2 of 7"),
        (
            ABANDONED,
            "abandoned",
            "",
            "its release was abandoned by bob, and it is held until a person frees it",
        ),
        (FREED, "freed", "", ""),
        (DONE, "done", "", ""),
    ],
)
def test_what_goes_on_and_why_it_is_held(release: Release, state: str, step: str, why: str) -> None:
    assert (release.next, release.why, release.holds) == (step, why, bool(why))
    assert release_view(release)["state"] == state
    assert release.failed is (state == "failed") and release.done is (state == "done")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("witness", ["bmc", "tpm", "head", "node", ""])
def test_the_nodes_own_word_is_no_proof(step: str, witness: Witness) -> None:
    release = spoken_for(DONE, step, witness)
    proves = witness != "node" or step in ("hold", "forget", "bmc-password")
    assert (release.over, release.done, release.waits) == (True, proves, not proves)
    assert (release.holds, release.next) == (not proves, "")


def test_whose_word_each_step_is_was_decided() -> None:
    """A step that is added says who shows that it was done: somebody else than the node."""
    assert set(BY_HEAD) | set(PROOF) == set(STEPS)
    assert set(BY_HEAD).isdisjoint(PROOF)
    assert [step for step, witness in BY_HEAD.items() if witness == "node"] == ["hold"], (
        "that nothing runs is of no use to who lies: it is switched off next"
    )


@pytest.mark.parametrize("witness", ["bmc", "tpm", "head", "node", ""])
def test_disks_are_known_by_a_release_that_somebody_else_has_seen(witness: Witness) -> None:
    release = spoken_for(DONE, "erase", witness)
    assert release.proves_disks is (witness in ("bmc", "tpm"))


def test_a_person_vouches_for_what_nobody_but_the_node_says() -> None:
    assert release_view(ALONE)["state"] == "unconfirmed"
    assert "waits for a person: erase rest on the node's own word" in ALONE.why
    sure = confirmed(ALONE, "bob", 300.0)
    assert (sure.done, sure.holds, sure.waits, sure.why) == (True, False, False, "")
    assert (sure.confirmed_by, sure.ended, release_view(sure)["state"]) == ("bob", 300.0, "done")
    given_up = abandoned(ALONE, "eve", 310.0)
    assert (given_up.waits, given_up.holds) == (False, True)
    assert freed(given_up, "eve").holds is False


def test_the_steps_come_in_this_order() -> None:
    assert STEPS == ("hold", "restart", "erase", "tpm", "forget", "bmc-password", "power-cycle")
    assert [step.name for step in DONE.steps] == list(STEPS) and DONE.ended == 166.0
    assert after(len(STEPS) - 1).ended == 0.0


def test_a_step_that_is_begun_again_is_counted_and_is_as_new() -> None:
    assert RUNNING.steps[-1] == ReleaseStep(name="restart", began=200.0)
    again = began(retried(FAILED), 300.0)
    assert again.steps[-1] == ReleaseStep(name="restart", began=300.0, tries=2)
    assert again.steps[:-1] == FAILED.steps[:-1]
    assert began(again, 301.0).steps[-1].tries == 3
    waiting = retried(FAILED).steps[-1]
    assert (waiting.result, waiting.ended, waiting.detail, waiting.tries) == (
        "",
        0.0,
        "no agent",
        1,
    )


def test_what_an_end_says_is_kept_and_so_are_the_disks() -> None:
    first = ended(RUNNING, "left", 210.0, "x" * 600, [DISK], ["sda: in use"])
    assert first.steps[-1] == ReleaseStep(
        name="restart", began=200.0, ended=210.0, result="left", detail="x" * MAX_DETAIL
    )
    assert MAX_DETAIL == 500 and (first.disks, first.left) == ((DISK,), ("sda: in use",))
    second = ended(began(first, 220.0), "done", 230.0)
    assert (second.disks, second.left) == ((DISK,), ("sda: in use",))
    other = msgspec.structs.replace(DISK, serial="T")
    third = ended(began(second, 240.0), "done", 250.0, "", [other], ["sdb: gone"])
    assert (third.disks, third.left) == ((other,), ("sdb: gone",))


@pytest.mark.parametrize(
    ("change", "release", "text"),
    [
        (lambda r: began(r, 1.0), DONE, "cannot go on with the release of n1: it has ended"),
        (
            lambda r: began(r, 1.0),
            FAILED,
            "cannot go on with the release of n1: its release failed at restart: no agent",
        ),
        (
            lambda r: ended(r, "done", 1.0),
            NEW,
            "cannot end a step of the release of n1: none is running",
        ),
        (
            lambda r: ended(r, "done", 1.0),
            FAILED,
            "cannot end a step of the release of n1: none is running",
        ),
        (
            lambda r: ended(r, "done", 1.0),
            abandoned(RUNNING, "bob", 1.0),
            "cannot end a step of the release of n1: none is running",
        ),
        (retried, RUNNING, "cannot try the release of n1 again: it has not failed"),
        (retried, ABANDONED, "cannot try the release of n1 again: it has not failed"),
        (
            lambda r: abandoned(r, "bob", 1.0),
            DONE,
            "cannot abandon the release of n1: it has ended",
        ),
        (
            lambda r: abandoned(r, "eve", 1.0),
            ABANDONED,
            "cannot abandon the release of n1: its release was abandoned by bob, and it is held "
            "until a person frees it",
        ),
        (
            lambda r: confirmed(r, "eve", 1.0),
            DONE,
            "cannot confirm the release of n1: it has ended",
        ),
        (
            lambda r: confirmed(r, "eve", 1.0),
            FAILED,
            "cannot confirm the release of n1: its release failed at restart: no agent",
        ),
        (
            lambda r: confirmed(r, "eve", 1.0),
            abandoned(ALONE, "bob", 1.0),
            "cannot confirm the release of n1: its release was abandoned by bob, and it is held "
            "until a person frees it",
        ),
        (lambda r: freed(r, "eve"), FAILED, "cannot free n1: no abandoned release holds it"),
        (lambda r: freed(r, "eve"), FREED, "cannot free n1: no abandoned release holds it"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    change: Callable[[Release], Release], release: Release, text: str
) -> None:
    with pytest.raises(Refused) as refused:
        change(release)
    assert refused.value.message == text


def test_a_release_as_it_is_shown() -> None:
    release = msgspec.structs.replace(FREED, force=True, disks=(DISK,), left=("sda: in use",))
    shown = release_view(release)
    steps = shown.pop("steps")
    assert shown == {
        "id": "r1",
        "by": "ann",
        "asked": 100.0,
        "ended": 220.0,
        "force": True,
        "state": "freed",
        "abandoned_by": "bob",
        "freed_by": "eve",
        "confirmed_by": "",
        "disks": [
            {
                "model": "M",
                "serial": "S",
                "way": "format",
                "seconds": 1.5,
                "size": 7,
                "verified": True,
            }
        ],
        "left": ["sda: in use"],
    }
    assert [step["name"] for step in steps] == list(STEPS)
    assert steps[1] == {
        "name": "restart",
        "began": 200.0,
        "ended": 210.0,
        "result": "failed",
        "detail": "no agent",
        "tries": 1,
        "witness": "",
    }
    assert steps[2] == {
        "name": "erase",
        "began": 0.0,
        "ended": 0.0,
        "result": "",
        "detail": "",
        "tries": 0,
        "witness": "",
    }
