"""Heads and nodes that are suspended and resumed, as hosts of virtual machines do it: nothing is
done to anybody, and all are in sync again. A real head with its modules, and real agents in
namespaces of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import HostSite
from smallimages import build_plain_image

pytestmark = [pytest.mark.root, pytest.mark.waits]
LONG_S = 10.0
"""Well over the 4 seconds after which this site's head holds a silent node for lost."""


@pytest.fixture(scope="module")
def site() -> Iterator[HostSite]:
    with tempfile.TemporaryDirectory(prefix="layercake-suspend-") as scratch:
        directory = Path(scratch)
        found = HostSite(
            directory / "site", 3, {"one": build_plain_image(directory / "one.squashfs", "one")}
        )
        try:
            found.up()
            found.wait(
                "all modules run",
                lambda: all(
                    s["state"] == "running" for s in found.api("GET", "/v1/status")["services"]
                ),
                120,
            )
            found.wait(
                "all starts are told",
                lambda: all(found.history(n.name, "image.started") for n in found.nodes),
                120,
            )
            yield found
        finally:
            found.down()


@contextlib.contextmanager
def suspended(pids: Callable[[], Iterable[int]]) -> Iterator[None]:
    """Processes stand still meanwhile: all that `pids` names once nothing begins and ends any
    more."""
    stopped: list[int] = []
    while new := [pid for pid in pids() if pid not in stopped]:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):  # a container's `sleep` comes and goes
                os.kill(pid, signal.SIGSTOP)
        stopped += new
    try:
        yield
    finally:
        for pid in reversed(stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def services(site: HostSite) -> dict[str, int]:
    return {s["name"]: s["pid"] for s in site.api("GET", "/v1/status")["services"]}


def facts(site: HostSite) -> dict[str, Any]:
    """What must be as it was: the modules' processes; of each node its agent, its containers, and
    its boot."""
    boots = {name: node["boot_id"] for name, node in site.states().items()}
    return {
        "modules": services(site),
        **{n.name: (n.agent, n.containers(), boots[n.name]) for n in site.nodes},
    }


def newest(site: HostSite) -> int:
    return max(int(e["id"]) for e in site.api("GET", "/v1/events?limit=10")["events"])


def since(site: HostSite, mark: int) -> list[str]:
    """The kinds of what has happened after an event, by node, with the mutations' names."""
    events = site.api("GET", "/v1/events?limit=500")["events"]
    return [
        " ".join(filter(None, (e["node"] or "-", e["kind"], e["data"].get("mutation"))))
        for e in events
        if e["id"] > mark
    ]


def heard(site: HostSite) -> int:
    return int(site.api("GET", "/v1/status")["sync"]["hello"])


def loop(site: HostSite) -> dict[str, Any]:
    """How late the head was."""
    found: dict[str, Any] = site.api("GET", "/v1/status")["loop"]
    return found


def all_well(site: HostSite) -> bool:
    return all(n["status"] == "converged" and n["last_seen_s"] < 2 for n in site.states().values())


@pytest.mark.parametrize("whole", [False, True], ids=["the head alone", "with its modules"])
def test_a_head_that_was_suspended_blames_nobody(site: HostSite, whole: bool) -> None:
    before, mark, stood = facts(site), newest(site), loop(site)["stood_s"]
    assert site.process is not None
    head = [site.process.pid, *(services(site).values() if whole else ())]
    with suspended(lambda: head):
        time.sleep(LONG_S)
    already = heard(site)
    site.wait(
        "all have spoken so often that the head judges again",
        lambda: heard(site) >= already + 3 * 8,
        120,
    )
    site.wait("all are in sync", lambda: all_well(site), 120)
    assert since(site, mark) == [], "nobody was lost, nothing was begun, no container was started"
    assert facts(site) == before
    assert site.api("GET", "/v1/status")["sync"]["deaf"] >= 1
    assert loop(site)["stood_s"] >= stood + LONG_S - 1 and loop(site)["most_s"] < LONG_S / 2, (
        "it stood still, and was not late"
    )


@pytest.mark.parametrize(
    "whole", [False, True], ids=["its agent and supervisor", "with its containers"]
)
def test_a_node_that_was_suspended_comes_back_as_it_was(site: HostSite, whole: bool) -> None:
    before, mark, node = facts(site), newest(site), site.nodes[0]
    supervisor = int(Path(f"/proc/{node.agent}/stat").read_text().rpartition(")")[2].split()[1])
    with suspended(node.processes if whole else lambda: [supervisor, node.agent]):
        site.wait("it is missed", lambda: "h0 sync.lost" in since(site, mark), 120)
        assert [n["status"] for n in site.states().values()][1:] == ["converged"] * 2
    site.wait("it is back", lambda: "h0 sync.attached" in since(site, mark), 120)
    site.wait("all are in sync", lambda: all_well(site), 120)
    assert facts(site) == before
    told = [line for line in since(site, mark) if not line.startswith(("h0 sync.", "h0 state."))]
    assert {line.split()[-1] for line in told} <= {"await-return", "attach"}, (
        "no join, no power, no container: it was waited for"
    )


def test_head_and_nodes_suspended_together_go_on(site: HostSite) -> None:
    """As where all of them are machines of one host."""
    before, mark = facts(site), newest(site)
    assert site.process is not None
    head = [site.process.pid, *services(site).values()]
    with suspended(lambda: [*head, *(pid for node in site.nodes for pid in node.processes())]):
        time.sleep(LONG_S)
    already = heard(site)
    site.wait(
        "all have spoken so often that the head judges again",
        lambda: heard(site) >= already + 3 * 8,
        120,
    )
    site.wait("all are in sync", lambda: all_well(site), 120)
    assert since(site, mark) == [] and facts(site) == before
