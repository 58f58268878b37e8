"""A module that never speaks, never answers, floods or lies harms neither the head nor the module
beside it."""

from __future__ import annotations

import asyncio
import functools
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from hostsite import HostSite

from layercake.modules import manager
from layercake.modules.declared import SiteModule
from layercake.modules.host import ModuleHost, Start
from layercake.modules.manager import Launch, ServiceManager
from tests.modules.conftest import Open
from tests.support.listener import KeepingListener

ROOT = Path(__file__).resolve().parents[2]
STUB = Path(__file__).resolve().parent / "hostile/stub.py"
# The variable of the one that never answers comes last by name: a node takes its steps one by one.
DECLARES = {
    "good": """
        variables: {good: {values: [WELL, ILL]}}
        goals: {up: {good: WELL}}
        calls: {good.ask: {doc: x, per_node: false}}
        events: {good.asked: {meaning: x}}
        mutations: {good-look: {changes: {good: [UNKNOWN, WELL]}, requires: {run: SYNC}}}
        """,
    "mute": "variables: {mute: {values: [LOW]}}",
    "deaf": """
        variables: {zdeaf: {values: [HEARS]}}
        goals: {up: {zdeaf: HEARS}}
        calls: {deaf.ask: {doc: x, per_node: false}}
        mutations: {zdeaf-look: {changes: {zdeaf: [UNKNOWN, HEARS]}, requires: {run: SYNC}, timeout: 1, retries: 1}}
        """,
    "flood": """
        variables: {flood: {values: [LOW, HIGH]}}
        events: {flood.told: {meaning: x}}
        mutations: {flood-look: {changes: {flood: [UNKNOWN, LOW]}, requires: {run: SYNC}}}
        """,
    "liar": """
        variables: {liar: {values: [LOW]}}
        events: {liar.told: {meaning: x}}
        """,
}
CALLS = 30
MEMORY_KB = 150_000
LOG_BYTES = 50_000


def memory_kb(site: HostSite) -> int:
    """What the head's process has in memory."""
    assert site.process is not None
    status = Path(f"/proc/{site.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def services(site: HostSite) -> dict[str, dict[str, Any]]:
    """The modules' processes by name."""
    return {s["name"]: s for s in site.api("GET", "/v1/status")["services"]}


def events(site: HostSite, kind: str) -> list[dict[str, Any]]:
    """All events of a kind that the head still has."""
    found: list[dict[str, Any]] = site.api("GET", f"/v1/events?kind={kind}&limit=1000")["events"]
    return [e for e in found if e["kind"] == kind]


def ask_deaf(site: HostSite) -> None:
    """A person asks the one that never answers, and gives up."""
    with pytest.raises(OSError):
        site.api("POST", "/v1/calls/deaf.ask", {}, timeout=2.0)


@pytest.mark.root
def test_bad_modules_beside_a_good_one(
    tmp_path: Path, site_with: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    modules = {}
    for name, declares in DECLARES.items():
        (tmp_path / f"{name}.yaml").write_text(f"doc: x\n{textwrap.dedent(declares)}")
        command = [sys.executable, str(STUB), name, str(tmp_path)]
        modules[name] = SiteModule(command=command, declares=str(tmp_path / f"{name}.yaml"))

    def more(than: int) -> bool:
        return int((tmp_path / "flood.count").read_text() or "0") > than

    with site_with(modules, converged=False) as site:
        site.wait(
            "the node is as the good module wants it",
            lambda: site.states()["h0"]["state"]["good"] == "WELL",
            120,
        )
        site.wait("the flood is on", lambda: (tmp_path / "flood.count").exists(), 120)
        site.wait("the lies are told", lambda: services(site)["liar"]["health"] == "lied", 120)
        before = memory_kb(site)
        waiting = threading.Thread(target=ask_deaf, args=(site,))
        waiting.start()

        for number in range(CALLS):
            told = int((tmp_path / "flood.count").read_text() or "0")
            (row,) = site.api("POST", "/v1/calls/good.ask", {"params": {"number": number}})[
                "answers"
            ]
            assert row["answer"] == {"number": number}
            if number % 10 == 0:  # the flood goes on meanwhile
                site.wait("more of it", functools.partial(more, told), 120)
        waiting.join()
        site.wait("the flood is told of", lambda: events(site, "service.floods"), 120)
        (tmp_path / "enough").touch()
        site.wait("the flood is over", lambda: services(site)["flood"]["health"] == "running", 120)
        site.wait(
            "its last word counts", lambda: site.states()["h0"]["state"]["flood"] == "HIGH", 120
        )

        assert [e["text"] for e in events(site, "good.asked")] == [str(n) for n in range(CALLS)], (
            "none is lost, none is twice"
        )
        assert memory_kb(site) - before < MEMORY_KB
        assert (site.directory / "head.log").stat().st_size < LOG_BYTES
        state = site.states()["h0"]["state"]
        assert (state["good"], state["power"], state["run"], state["liar"]) == (
            "WELL",
            "ON",
            "SYNC",
            "UNKNOWN",
        )
        refused = [e for e in events(site, "service.refused") if e["data"]["service"] == "liar"]
        assert [e["text"] for e in refused] == [
            "module liar: variable 'nothing' is not its to say something about"
        ]
        assert len(events(site, "liar.told")) == 1
        assert len(events(site, "liar.told")[0]["text"]) <= 2000
        assert any(
            "zdeaf-look was not done" in e["text"] for e in site.history("h0", "mutation.failed")
        )
        assert len(events(site, "flood.told")) < 1000
        found = services(site)
        assert (found["mute"]["state"], found["mute"]["health"]) == ("starting", "")
        assert {
            name: found[name]["restarts"] for name in ("good", "deaf", "flood", "liar")
        } == dict.fromkeys(("good", "deaf", "flood", "liar"), 0)


async def test_one_that_does_not_attach_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "ATTACH_S", 0.1)
    host = ModuleHost(tmp_path / "m.sock")
    launches = {
        "mute": Launch((sys.executable, str(STUB), "mute"), Start({})),
        "gone": Launch(("/no/such/program",), Start({})),
        "ends": Launch(("/bin/false",), Start({})),
    }
    services = ServiceManager(host, tmp_path / "m.sock", tmp_path / "log", launches)
    await host.start(KeepingListener())
    services.start()
    async with asyncio.timeout(20):
        while min(s.restarts for s in services.status.values()) < 1:
            await asyncio.sleep(0.02)
    assert {name: s.health for name, s in services.status.items()} == {
        "mute": "cannot start: it did not attach in 0 s",
        "ends": "ended with exit status 1",
        "gone": "cannot start: [Errno 2] there is no such program: '/no/such/program'",
    }
    await host.stop()
    await services.stop()
