"""The agent leaves the machine to the job: it stays on the cores that the site names, at the lowest
priority while the node is BUSY; what it starts for others does not. On this machine's kernel."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from imageapi.events import STAGED
from layercake.base.scheduling.cores import MOST_CORES, format_cores, parse_cores
from layercake.base.scheduling.threads import of_parent
from minos.agent.background import Background
from minos.events import CORES_FAILED
from tests.minos.test_agent import Rig, images, rig
from tests.support.fake_head import UP

__all__ = ["images", "rig"]

ALL = frozenset(os.sched_getaffinity(0))
FIRST = min(ALL)
ABSENT = MOST_CORES - 1
pytestmark = [
    pytest.mark.root,
    pytest.mark.waits,
    pytest.mark.skipif(len(ALL) < 2, reason="one core leaves nothing to choose"),
]
USUAL = (os.SCHED_OTHER, 0)
LAST = (os.SCHED_BATCH, 19)
Image = dict[str, Any]
Policy = tuple[int, int]


def threads(pid: int) -> dict[int, tuple[frozenset[int], Policy]]:
    """The cores, the policy and the nice value of each thread of a process, by number."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            tid = int(task.name)
            found[tid] = (
                frozenset(os.sched_getaffinity(tid)),
                (os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid)),
            )
    return found


def run_like(rig: Rig, cores: frozenset[int], policy: Policy) -> Callable[[], bool]:
    """Whether all threads of the agent run so, but for the loop's own policy."""

    def check() -> bool:
        found = threads(rig.agent)
        loop = found.pop(rig.agent)
        return loop == (cores, USUAL) and set(found.values()) == {(cores, policy)}

    return check


def begin(rig: Rig, images: dict[str, Image], **more: Any) -> None:
    """Starts an agent with an image that runs."""
    rig.head.document = {"revision": 1, "goal": UP, "images": [images["one"]], **more}
    rig.start()
    rig.head.wait_for(image="ACTIVE", run="SYNC")


def set_wanted(rig: Rig, **more: Any) -> None:
    """Has it fetch another desired state."""
    document = {**rig.head.document, **more}
    rig.head.document = {**document, "revision": rig.head.document["revision"] + 1}


def set_busy(rig: Rig, busy: bool) -> None:
    """What `layercake-busy` does."""
    if busy:
        (rig.run / "busy").touch()
    else:
        (rig.run / "busy").unlink()


@contextlib.contextmanager
def full_cores() -> Iterator[None]:
    """Two processes on each core that want all of it."""
    argv = [sys.executable, "-S", "-c", "while True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(2 * len(ALL)):
            hog = stack.enter_context(subprocess.Popen(argv))
            stack.callback(hog.kill)
        yield


def test_the_agent_stays_on_its_cores_and_nothing_else_does(
    rig: Rig, images: dict[str, Image]
) -> None:
    seen = rig.directory / "task"
    task = ["sh", "-c", f"grep Cpus_allowed_list /proc/self/status > {seen}"]
    begin(rig, images, minos={"cores": str(FIRST)}, uinit=[{"name": "see", "run": task}])
    rig.head.wait(run_like(rig, frozenset({FIRST}), USUAL))
    assert seen.read_text().split()[1] == format_cores(ALL)
    assert set(threads(rig.container()).values()) == {(ALL, USUAL)}
    set_wanted(rig, minos={})
    rig.head.wait(run_like(rig, ALL, USUAL))


def test_commands_run_on_all_cores_while_the_agent_does_not(
    rig: Rig, images: dict[str, Image]
) -> None:
    begin(rig, images, minos={"cores": str(FIRST)})
    set_busy(rig, True)
    rig.head.wait(run_like(rig, frozenset({FIRST}), LAST))
    show = "grep -h Cpus_allowed_list /proc/self/status; cut -d' ' -f19,41 /proc/self/stat"
    request = {"id": 5, "kind": "exec", "key": "a" * 16, "command": ["sh", "-c", show]}
    set_wanted(rig, requests=[request])
    rig.head.wait(lambda: 5 in rig.head.answers)
    output = base64.b64decode(rig.head.answers[5]["out"]).decode().split()
    assert output == ["Cpus_allowed_list:", format_cores(ALL), "0", "0"]


@pytest.mark.parametrize("absent", [f"{FIRST},{ABSENT}", str(ABSENT)], ids=["one", "all of them"])
def test_cores_that_the_node_lacks_are_reported_and_left_out(
    rig: Rig, images: dict[str, Image], absent: str
) -> None:
    begin(rig, images, minos={"cores": absent})
    rig.head.wait(lambda: CORES_FAILED.name in rig.head.kinds())
    (event,) = (e for e in rig.head.events if e["kind"] == CORES_FAILED.name)
    assert f"this node has {format_cores(ALL)}" in event["text"]
    cores = parse_cores(absent) & ALL or ALL
    rig.head.wait(run_like(rig, cores, USUAL))


def test_the_agent_gives_way_while_the_node_is_busy(rig: Rig, images: dict[str, Image]) -> None:
    """Also a thread that begins then, as the one that stages."""
    begin(rig, images)
    set_busy(rig, True)
    rig.head.wait(run_like(rig, ALL, LAST))
    set_wanted(rig, stage=[images["two"]])
    rig.head.wait(lambda: STAGED.name in rig.head.kinds())
    rig.head.wait(run_like(rig, ALL, LAST))
    assert set(threads(rig.container()).values()) == {(ALL, USUAL)}
    set_busy(rig, False)
    rig.head.wait(run_like(rig, ALL, USUAL))


def test_hellos_of_a_busy_node_come_in_time_when_all_cores_are_full(
    rig: Rig, images: dict[str, Image]
) -> None:
    """On one core, which two others want, and while it stages: before the head
    holds the node for lost, which is after three that did not come."""
    rig.head.hello_s = 1.0
    begin(rig, images, minos={"cores": str(FIRST)})
    set_busy(rig, True)
    rig.head.wait(run_like(rig, frozenset({FIRST}), LAST))
    with full_cores():
        set_wanted(rig, stage=[images["two"]])
        first = len(rig.head.heard_at)
        rig.head.wait(lambda: len(rig.head.heard_at) >= first + 10, 60.0)
        came = rig.head.heard_at[first:]
    spacing = [later - before for before, later in itertools.pairwise(came)]
    print([round(s, 3) for s in spacing])
    assert max(spacing) < 3 * rig.head.hello_s


@pytest.mark.parametrize(
    "section",
    [None, 7, [], {"cores": None}, {"cores": 1.5}, {"cores": ["0"]}, {"cores": "x" * 10_000}],
    ids=["none", "number", "list", "no cores", "fraction", "list of cores", "long text"],
)
def test_what_no_head_says_changes_nothing(section: object) -> None:
    """In this process: the agent's side alone."""
    events: list[str] = []
    background = Background(lambda kind, text, severity=None, **data: events.append(text))
    before = threads(os.getpid())
    background.set_desired({"minos": section})
    assert threads(os.getpid()) == before
    assert all(len(text) < 300 for text in events)


@pytest.mark.parametrize(
    ("text", "cores", "shortest"),
    [
        ("0", {0}, "0"),
        ("0-3", {0, 1, 2, 3}, "0-3"),
        ("3,1, 2", {1, 2, 3}, "1-3"),
        ("0,2-3,64", {0, 2, 3, 64}, "0,2-3,64"),
        ("8191", {8191}, "8191"),
    ],
    ids=["one", "range", "unordered", "several", "last"],
)
def test_lists_of_cores(text: str, cores: set[int], shortest: str) -> None:
    assert parse_cores(text) == cores
    assert format_cores(cores) == shortest


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "8192", "1--2", "0x1", "٣", "1;2"])
def test_what_is_no_list_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match="core"):
        parse_cores(text)


def test_a_childs_usual_scheduling_is_that_of_the_parent() -> None:
    assert of_parent().cores == frozenset(os.sched_getaffinity(os.getppid()))
