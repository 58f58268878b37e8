"""A week of a site, with its time compressed: changes of three people, a roll, a bad one that takes
itself back, an outage during which things are changed, a revert, and on Sunday an audit. The
commands are those that people type, over TLS with their tokens; git and clush are the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from layercake.agents import pki
from layercake.cli.main import main
from layercake.cli.shell_groups import CONFIG
from layercake.features.guard.guard import Guard
from layercake.features.history.history import History
from tests.support.api import token
from tests.support.rollnodes import Site, a_site, inventory

NODES = 8
DARK = ["n4", "n5", "n6", "n7"]
ROOT = Path(__file__).resolve().parents[2]
PEOPLE = {"ann": "admin", "bob": "admin", "olaf": "operator", "eve": "viewer"}
HARM = ("power-on", "power-off", "power-reset", "boot-arm")


class Week:
    """The site, its people, and what they type."""

    def __init__(self, site: Site, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.site = site
        self.folder = folder
        self._capsys = capsys
        self.port = 0

    @property
    def url(self) -> str:
        """Where the head answers over TLS."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate by which it is known."""
        return self.site.world.directory / "pki/ca.pem"

    def told_as(self, who: str) -> list[str]:
        """The options of the program by which somebody is known."""
        known = ["--token-file", str(self.folder / who), "--ca", str(self.authority)]
        return ["--url", self.url, *known]

    async def types(self, who: str, *words: str, code: int = 0) -> str:
        """What a command prints that somebody types; it has to end with that code."""
        ended = await asyncio.to_thread(main, [*self.told_as(who), *words])
        found = self._capsys.readouterr()
        assert ended == code, found.out + found.err
        return found.out + found.err

    async def runs(self, *words: str, **environment: str) -> tuple[int, str]:
        """The status of another program, and what it says."""
        process = await asyncio.create_subprocess_exec(
            *words,
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    async def git(self, who: str, *words: str) -> tuple[int, str]:
        """What git says that has somebody's token."""
        bearer = f"http.extraHeader=Authorization: Bearer {(self.folder / who).read_text().strip()}"
        return await self.runs("git", "-c", bearer, *words, GIT_SSL_CAINFO=str(self.authority))

    def harmed(self) -> list[str]:
        """The steps by which machines were switched."""
        return [
            f"{name}: {event.data['mutation']}"
            for name in self.site.agents
            for event in self.site.world.events_of(name)
            if event.kind == "mutation.started" and event.data["mutation"] in HARM
        ]


@pytest.fixture
async def week(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Week]:
    folder = tmp_path_factory.mktemp("w")
    async with a_site(tmp_path, NODES, time.time()) as site:
        head = site.world.head
        pki.create(tmp_path / "pki", "127.0.0.1")
        head.settings = msgspec.structs.replace(head.settings, socket=str(folder / "s"), api_port=0)
        found = Week(site, folder, capsys)
        for name, role in PEOPLE.items():
            header = (await token(head, name, role, may_exec=role != "viewer"))["Authorization"]
            (folder / name).write_text(header.removeprefix("Bearer "))
            (folder / name).chmod(0o600)
        api = head.api()
        await api.start()
        found.port = api.port
        tasks = [
            asyncio.create_task(head.part(History).run()),
            asyncio.create_task(_time_passes(site)),
        ]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await api.stop()


async def _time_passes(site: Site) -> None:
    """A second of the site in a few milliseconds."""
    while True:
        await site.step()
        await asyncio.sleep(0.02)


async def test_a_week(week: Week) -> None:
    await _monday(week)
    await _tuesday(week)
    await _thursday(week)
    await _friday(week)
    await _saturday(week)
    await _sunday(week)


async def _monday(week: Week) -> None:
    """Ann changes the file, and has it applied; Bob tries something on one node."""
    file = week.folder / "rack.yaml"
    text = inventory(NODES, "one").replace("groups: []", "groups: [small], labels: {row: a}")
    file.write_text(text)
    await week.types("ann", "apply", str(file), "--yes", "--no-wait", "--reason", "rows are known")
    said = await week.types("ann", "plan", str(file))
    assert "nothing to change" in said
    await week.types("bob", "node", "set", "n3", "kernel_args=debug", "--reason", "ticket 17")
    denied = await week.types("eve", "node", "set", "n3", "kernel_args=quiet", code=4)
    assert "needs the role admin" in denied


async def _tuesday(week: Week) -> None:
    """A roll through the site."""
    said = await week.types("bob", "image", "roll", "n[0-7]", "two", "--batch", "4", "--yes")
    assert "done" in said
    assert set(week.site.running().values()) == {"two"}


async def _thursday(week: Week) -> None:
    """A bad roll: the image fails on one node, and its batch is taken back."""
    week.site.agents["n1"].bad = "three"
    roll = ["image", "roll", "n[0-7]", "three", "--batch", "2", "--health-timeout", "2", "--yes"]
    said = await week.types("bob", *roll, code=1)
    assert "failed" in said and "n1" in said
    async with asyncio.timeout(60):
        while set(week.site.running().values()) != {"two"}:
            await asyncio.sleep(0.02)
    week.site.agents["n1"].bad = ""


async def _friday(week: Week) -> None:
    """Half of the site is dark; what is changed meanwhile is kept, and no machine is switched."""
    before = len(week.harmed())
    for name in DARK:
        week.site.agents[name].silent = True
    guard = week.site.world.head.part(Guard)
    async with asyncio.timeout(60):
        while not guard.outages.whole:
            await asyncio.sleep(0.02)
    said = await week.types("eve", "explain", code=1)
    assert "an outage of the site: 4 of 8 nodes" in said and "n[4-7]" in said
    await week.types("ann", "node", "set", "n5", "kernel_args=late", "--reason", "in the dark")
    code, said = await _clush(week, "@dark-side")
    assert code != 0, "there is no such group"
    code, said = await _clush(week, "@layercake:test")
    assert code == 0 and said.splitlines() == ["n0: n0"]
    code, said = await _clush(week, "@all")
    assert code == 0 and sorted(said.split()[1::2]) == [f"n{number}" for number in range(NODES)]
    for name in DARK:
        week.site.agents[name].silent = False
    async with asyncio.timeout(60):
        while guard.outages.whole:
            await asyncio.sleep(0.02)
    assert len(week.harmed()) == before


async def _saturday(week: Week) -> None:
    """What Bob tried on Monday is undone, and nothing else."""
    log = await week.types("eve", "inventory", "log", "n3")
    revision = next(line for line in log.splitlines() if "ticket 17" in line).split()[0]
    plan = await week.types("ann", "inventory", "revert", revision, "--plan")
    assert "debug -> (none)" in plan and "n5" not in plan
    undo = ["inventory", "revert", revision, "--yes", "--no-wait", "-m", "ticket 17 is over"]
    await week.types("ann", *undo)
    shown = await week.types("ann", "inventory", "show")
    assert "debug" not in shown and "late" in shown


async def _sunday(week: Week) -> None:
    """Who changed what, when and why: by the head's own words, and in a clone."""
    await week.site.world.head.part(History).caught_up()
    blame = await week.types("ann", "inventory", "blame", "n5")
    assert re.search(r"kernel_args.*ann.*in the dark|ann.*in the dark", blame), blame
    audit = await week.types("ann", "audit", "--since", "30d")
    rows = [re.split(r"  +", line) for line in audit.splitlines()]
    reasons = [re.search(r"\breason=(.*?)(?= \w+=|$)", row[6]) for row in rows]
    done = [(row[1], row[4], why[1]) for row, why in zip(rows, reasons, strict=True) if why]
    for one in (
        ("ann", "POST /v1/inventory/apply", "rows are known"),
        ("bob", "PATCH /v1/nodes/n3", "ticket 17"),
        ("ann", "PATCH /v1/nodes/n5", "in the dark"),
        ("ann", "POST /v1/inventory/revert", "ticket 17 is over"),
    ):
        assert done.count(one) == 1, one
    assert [row[1] for row in rows if row[4] == "POST /v1/rolls"] == ["bob", "bob"]
    assert "eve" not in {row[1] for row in rows}, "she has changed nothing"
    source = f"{week.url}/v1/inventory/history.git"
    code, said = await week.git("olaf", "clone", "--quiet", source, str(week.folder / "no"))
    assert code != 0 and "403" in said, "a clone is for who may see all"
    code, said = await week.git("ann", "clone", "--quiet", source, str(week.folder / "clone"))
    assert code == 0, said
    form = "--format=%an|%s|%b"
    code, said = await week.runs("git", "-C", str(week.folder / "clone"), "log", "--reverse", form)
    told = [line for line in said.splitlines() if "|" in line]
    at = [
        next(i for i, line in enumerate(told) if line.startswith(who) and what in line)
        for who, what in (
            ("ann", "row"),
            ("bob", "change kernel_args of n3"),
            ("bob", "roll 1 of 8 nodes to two"),
            ("bob", "roll 2 of 8 nodes to three"),
            ("ann", "change kernel_args of n5"),
            ("ann", "revert"),
        )
    ]
    assert at == sorted(at), "in the order of the week"
    newest = next((week.folder / "clone").glob("nodes/*/n1.yaml")).read_text()
    assert "two" in newest and "three" not in newest


async def _clush(week: Week, nodes: str) -> tuple[int, str]:
    """What clush prints that gets its groups from the head, and runs a command for each node."""
    folder = week.folder / "clustershell"
    if not folder.exists():
        (folder / "groups.conf.d").mkdir(parents=True)
        (folder / "groups.conf.d/layercake.conf").write_text(CONFIG)
        main_conf = f"[Main]\ndefault: layercake\nconfdir: {folder}/groups.conf.d\n"
        (folder / "groups.conf").write_text(main_conf)
        program = folder / "layercake"
        line = f'cd {ROOT} && exec {sys.executable} -m layercake.cli.main "$@"'
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    clush = [sys.executable, "-m", "ClusterShell.CLI.Clush", "-R", "exec", "-w", nodes]
    shown = ["layercake", "node", "list", "%h", "--columns", "name", "--no-header"]
    with contextlib.suppress(FileNotFoundError):
        return await week.runs(
            *clush,
            *shown,
            CLUSTERSHELL_CFGDIR=str(folder),
            PATH=path,
            LAYERCAKE_SOCKET=str(week.folder / "s"),
        )
    raise AssertionError("clush is not there")
