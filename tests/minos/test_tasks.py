"""The site's tasks on a node: done once in a boot, in order, ended when they take too long, and
images wait for what failed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

from layercake.head.modules import standard
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node
from layercake.kraken.errors import OperationFailed
from minos.agent.tasks.runner import TaskRunner
from minos.agent.tasks.task import Task, applies, do, parse
from tests.minos.test_agent import Rig, images
from tests.support.fake_head import UP
from tests.support.inventory import load

__all__ = ["images"]

SITE = """\
defaults:
  uinit:
    tune: {sysctl: {vm.swappiness: 1, net.core.somaxconn: "4096"}, order: 10}
    home: {mount: {what: "10.0.0.5:/home", where: /home, type: nfs4, options: ro}, on_failure: go-on, when: {missing: /local}}
groups:
  gpu:
    uinit:
      gpu: {modules: [nvidia, "nfs callback_tcpport=4000"]}
      tune: {run: [/usr/local/bin/tune, --gpu], timeout_s: 5, retries: 2}
  bare: {uinit: {home: null}}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.99.0.10}
  n1: {mac: "52:54:00:00:00:11", ip: 10.99.0.11, groups: [gpu, bare]}
"""


def told(node: Node) -> list[dict[str, Any]]:
    return list(json.loads(json.dumps(standard().told_to(node)["uinit"])))


def test_layers_are_merged_by_name_and_a_node_is_told_them_in_order() -> None:
    nodes = load(SITE).nodes
    assert [task["name"] for task in told(nodes["n0"])] == ["tune", "home"]
    assert told(nodes["n0"])[0] == {
        "name": "tune",
        "sysctl": {"vm.swappiness": "1", "net.core.somaxconn": "4096"},
        "order": 10,
    }
    assert [task["name"] for task in told(nodes["n1"])] == ["gpu", "tune"], (
        "both of order 50: by name"
    )
    for node in nodes.values():
        assert Node.from_record(node.to_record(), standard().parts) == node
    parsed = [parse(task) for task in told(nodes["n1"])]
    assert parsed[0].commands == (
        ("modprobe", "nvidia"),
        ("modprobe", "nfs", "callback_tcpport=4000"),
    )
    assert (parsed[1].timeout_s, parsed[1].retries, parsed[1].holds) == (5.0, 2, True)
    mount = parse(told(nodes["n0"])[1])
    assert (
        mount.commands == (("mount", "-t", "nfs4", "-o", "ro", "10.0.0.5:/home", "/home"),)
        and not mount.holds
    )


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a: {}", "does not say what is to be done"),
        ("a: {run: [x], sysctl: {vm.a: 1}}", "has sysctl and run"),
        ("'A b': {run: [x]}", "cannot be a task's name"),
        ("a: {run: x}", "expected a command as a list"),
        ("a: {run: []}", "expected a command as a list"),
        ("a: {sysctl: {../../etc/passwd: x}}", "is no kernel parameter"),
        ("a: {sysctl: {vm.a: [1]}}", "expected a number or a text"),
        ("a: {modules: ['a; rm']}", "is no kernel module"),
        ("a: {mount: {what: a, where: b, type: c}}", "is no path"),
        ("a: {mount: {what: a, where: /b}}", "type is missing"),
        ("a: {run: [x], when: {moon: full}}", "unknown key"),
        ("a: {run: [x], timeout_s: 0}", "expected seconds"),
        ("a: {run: [x], retries: 99}", "99|<= 10|10"),
        ("a: {run: [x], on_failure: panic}", "panic"),
    ],
)
def test_mistakes_are_told_with_their_line(what: str, said: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        load(
            "nodes:\n  n0:\n    mac: 52:54:00:00:00:10\n    ip: 10.99.0.10\n    uinit:\n      "
            f"{what}\n"
        )
    found = caught.value.problems
    assert len(found) == 1 and found[0].line == 6
    assert any(word in str(found[0]) for word in said.split("|"))


def run(*command: str, **more: Any) -> Task:
    return Task("t", (command,), **more)


def test_a_task_is_done_and_what_fails_says_its_last_words(tmp_path: Path) -> None:
    do(
        run("sh", "-c", f"echo $LAYERCAKE_NODE > {tmp_path}/x"),
        {"LAYERCAKE_NODE": "n7"},
        time.monotonic,
    )
    assert (tmp_path / "x").read_text() == "n7\n"
    with pytest.raises(
        OperationFailed, match=r"sh ended with status 3; it said last:\nno such thing"
    ):
        do(run("sh", "-c", "echo no such thing >&2; exit 3"), {}, time.monotonic)
    with pytest.raises(OperationFailed, match="cannot run /no/such"):
        do(run("/no/such"), {}, time.monotonic)
    with pytest.raises(OperationFailed) as caught:
        do(run("sh", "-c", "seq 1000000; exit 1"), {}, time.monotonic)
    assert len(str(caught.value)) < 3000 and "1000000" in str(caught.value), (
        "the end of what it said, and no more"
    )


def test_one_that_takes_too_long_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"sh was ended after 0\.5 s"):
        do(
            run("sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait", timeout_s=0.5),
            {},
            time.monotonic,
        )
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + patience(30)
    while (
        Path(f"/proc/{pid}").exists()
        and "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_it_leaves_running_holds_nobody_up() -> None:
    began = time.monotonic()
    do(run("sh", "-c", "sleep 300 &"), {}, time.monotonic)
    assert time.monotonic() - began < patience(60)


def test_kernel_parameters_are_written(tmp_path: Path) -> None:
    (tmp_path / "sys/vm").mkdir(parents=True)
    do(Task("t", parameters=(("vm.swappiness", "1"),)), {}, time.monotonic, proc=tmp_path)
    assert (tmp_path / "sys/vm/swappiness").read_text() == "1"
    with pytest.raises(OperationFailed, match=r"cannot set net\.none to 1: No such file"):
        do(Task("t", parameters=(("net.none", "1"),)), {}, time.monotonic, proc=tmp_path)


def test_when_says_where(tmp_path: Path) -> None:
    traits = {"arch": "x86_64", "firmware": "uefi"}
    assert applies(Task("t"), traits) and applies(
        Task("t", when={"arch": "x86_64", "exists": str(tmp_path)}), traits
    )
    assert not applies(Task("t", when={"firmware": "bios"}), traits)
    assert not applies(Task("t", when={"missing": str(tmp_path)}), traits)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"name": "a", "run": 1},
        {"name": "a", "sysctl": {"../x": 1}},
        {"name": "a", "timeout_s": "x"},
    ],
)
def test_what_is_no_task_is_refused(wrong: object) -> None:
    with pytest.raises(OperationFailed, match="not as agreed"):
        parse(wrong)


class Node1:
    """A keeper, and what it says; nobody waits."""

    def __init__(self, run_: Path, boot: str = "b") -> None:
        self.events: list[tuple[str, str]] = []
        self.pauses: list[float] = []
        config: Any = SimpleNamespace(run=run_, boot_id=boot, name="n1")
        self.keeper = TaskRunner(
            config,
            lambda kind, text, severity=None, **data: self.events.append((kind.name, text)),
            clock=lambda: 0.0,
            pause=self.pauses.append,
        )

    def want(self, *tasks: dict[str, Any]) -> None:
        session: Any = SimpleNamespace(traits={})
        self.keeper.set_desired({"uinit": list(tasks)}, session)


def noted(path: Path, word: str) -> dict[str, Any]:
    return {"name": word, "run": ["sh", "-c", f"echo {word} >> {path}"]}


def test_each_is_done_once_in_a_boot_also_when_the_agent_starts_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    node = Node1(tmp_path)
    node.want(noted(log, "a"), noted(log, "b"))
    node.keeper.finish()
    node.keeper.finish()
    again = Node1(tmp_path)
    again.want(noted(log, "a"), noted(log, "b"), noted(log, "c"))
    again.keeper.finish()
    assert log.read_text() == "a\nb\n", "what came later counts in the next boot"
    assert [kind for kind, _ in node.events] == ["node.task-done"] * 2
    other = Node1(tmp_path, "another boot")
    other.want(noted(log, "c"))
    other.keeper.finish()
    assert log.read_text() == "a\nb\nc\n"


def test_one_that_fails_is_tried_again_and_then_holds_the_images(tmp_path: Path) -> None:
    log = tmp_path / "log"
    node = Node1(tmp_path)
    node.want(
        noted(log, "a"),
        {"name": "bad", "run": ["sh", "-c", f"echo x >> {log}; exit 1"], "retries": 2},
        noted(log, "c"),
    )
    for _ in range(2):
        with pytest.raises(
            OperationFailed, match="task bad of the site has failed: sh ended with status 1"
        ):
            node.keeper.finish()
    assert log.read_text() == "a\n" + "x\n" * 6 and len(node.pauses) == 4
    assert "has failed 3 times, the images wait" in node.events[1][1]
    node.want(noted(log, "a"), {"name": "bad", "run": ["true"]}, noted(log, "c"))
    node.keeper.finish()
    assert log.read_text().endswith("x\nc\n")


def test_one_that_may_fail_holds_nobody(tmp_path: Path) -> None:
    node = Node1(tmp_path)
    node.want(
        {"name": "bad", "run": ["false"], "on_failure": "go-on"}, noted(tmp_path / "log", "b")
    )
    node.keeper.finish()
    assert (tmp_path / "log").read_text() == "b\n" and "start all the same" in node.events[0][1]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.mark.root
def test_an_agent_does_them_before_its_images_start(
    rig: Rig, images: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    head, log = rig.head, tmp_path / "log"
    bad = {"name": "second", "run": ["sh", "-c", f"echo second >> {log}; test -e {tmp_path}/well"]}
    head.document = {
        "revision": 3,
        "goal": UP,
        "images": [images["one"]],
        "requests": [],
        "uinit": [noted(log, "first"), bad],
    }
    rig.start()
    head.wait_for(image="ERROR")
    assert rig.container() == 0 and log.read_text().startswith("first\nsecond\n")
    head.wait(
        lambda: any(
            "task second of the site has failed: sh ended with status 1" in e["text"]
            for e in head.events
        )
    )
    (tmp_path / "well").touch()
    head.wait_for(image="ACTIVE")
    head.wait(lambda: head.kinds().count("node.task-done") == 2)
    done, container = log.read_text(), rig.container()
    agent = rig.agent
    os.kill(agent, signal.SIGKILL)
    head.wait(lambda: rig.agent != agent)
    os.kill(container, signal.SIGKILL)
    head.wait(lambda: rig.container() not in (0, container))
    assert log.read_text() == done, "once in a boot"
