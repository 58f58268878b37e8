"""The logs of consoles on a head that follows: what the leader's module has written is there soon,
byte by byte, whatever happens to files and heads meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from patience import patience

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.base.clock import stamp
from layercake.base.tcp_listener import Limits, bound_sockets
from layercake.features.heads.node_routes import WRITTEN, ConsoleRequests
from layercake.heads.consoles import copies
from layercake.heads.consoles.copies import ConsoleCopies
from layercake.heads.consoles.pieces import GONE, Changed, CopyState, Piece, copy_state, pieces
from layercake.heads.copying import HeadLink
from layercake.moduleapi.web import WebServer
from powerman.console.logs import ConsoleLogs, LogLimits
from tests.support import headroutes
from tests.support.headroutes import ADDRESS

LIMITS = LogLimits(each=128 << 10, all=64 << 20)


class Heads:
    """Two heads with the keys of one site; the first leads, and its module writes logs."""

    def __init__(self, directory: Path) -> None:
        self.here = directory / "leader"
        self.there = directory / "follower"
        pki.create(self.here / "pki", ADDRESS)
        self.authority = Authority(self.here / "pki")
        own = self.authority.issue_head(ADDRESS)
        for name, data in {
            "ca.pem": (self.here / "pki/ca.pem").read_text(),
            "server.pem": own["cert"],
            "server.key": own["key"],
        }.items():
            (self.there / "pki").mkdir(parents=True, exist_ok=True)
            (self.there / "pki" / name).write_text(data)
        self.logs = ConsoleLogs(self.here / "consoles", LIMITS)
        self.url = ""
        self.asked: list[float] = []
        self.follower = ConsoleCopies(
            self.there, HeadLink(partial(pki.between_heads, Authority(self.there / "pki")))
        )

    async def written_since(
        self, call: str, params: Mapping[str, Any], timeout: float = 0.0
    ) -> Any:
        """What the module answers."""
        assert call == WRITTEN
        self.asked.append(time.monotonic())
        now, names = self.logs.written_since(params["since"])
        return {"now": now, "names": names}

    async def serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Serves the leader's logs."""
        routes = ConsoleRequests(self.here, self.written_since).routes()
        self.url = await headroutes.serve(stack, routes, self.authority)

    def write_line(self, node: str, text: str) -> None:
        """A console says something, and it is written."""
        self.logs.add(node, f"{stamp(time.time())} {text}\n")
        left, trouble = self.logs.write(self.logs.take_pending(), 1)
        assert not left and not trouble

    def same(self) -> bool:
        """Whether the follower has what the leader has, and nothing else."""
        return _files(self.here) == _files(self.there)


def _files(directory: Path) -> dict[str, bytes]:
    found = (directory / "consoles").glob("*")
    return {path.name: path.read_bytes() for path in found}


async def until(what: Callable[[], bool]) -> None:
    """Waits for what must be seen."""
    async with asyncio.timeout(patience(20)):
        while not what():
            await asyncio.sleep(0.02)


@pytest.fixture
async def heads(tmp_path: Path) -> AsyncIterator[Heads]:
    found = Heads(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        await found.serve(stack)
        yield found


@contextlib.asynccontextmanager
async def following(heads: Heads) -> AsyncIterator[None]:
    """The second head follows the first one for the length of a block."""
    task = asyncio.create_task(heads.follower.copy_from(lambda: heads.url))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_consoles_say_is_on_the_follower_soon(heads: Heads) -> None:
    heads.write_line("n1", "before it followed")
    async with following(heads):
        await until(heads.same)
        for number in range(3):
            heads.write_line("n1", f"line {number}")
            heads.write_line(f"n{number}", "more")
            await until(heads.same)
        said = time.time()
        await until(lambda: heads.follower.complete_at >= said)
    assert (heads.there / "consoles/n1.log").stat().st_mode & 0o777 == 0o600
    assert heads.follower.trouble == ""


async def test_a_leader_whose_consoles_are_quiet_is_asked_less_often(heads: Heads) -> None:
    heads.write_line("n1", "before it followed")
    async with following(heads):
        await until(heads.same)
        asked = len(heads.asked)
        await until(lambda: len(heads.asked) > asked + 3)
    second, third = heads.asked[-2:]
    assert third - second >= copies.QUIET_S


async def test_logs_are_rotated_there_as_here(heads: Heads) -> None:
    async with following(heads):
        for number in range(600):
            heads.write_line("n1", f"line {number} ".ljust(600, "."))
            if number % 20 == 0:
                await asyncio.sleep(0.01)
        await until(heads.same)
    assert set(_files(heads.there)) == {"n1.log", "n1.log.1"}


async def test_one_that_was_away_or_led_itself_has_what_the_leader_has(heads: Heads) -> None:
    for number in range(300):
        heads.write_line("n1", f"line {number} ".ljust(400, "."))
    async with following(heads):
        await until(heads.same)
    log = heads.there / "consoles/n1.log"
    log.write_bytes(log.read_bytes() + b"what only this one has, as it led\n")
    (heads.there / "consoles/gone.log").write_text("of a node that has no log here any more\n")
    for number in range(300):
        heads.write_line("n1", f"further {number} ".ljust(400, "."))
    heads.write_line("n2", "new")
    async with following(heads):
        await until(heads.same)


async def test_a_log_that_is_forgotten_is_forgotten_there_too(heads: Heads) -> None:
    heads.write_line("n1", "of its user")
    heads.write_line("n2", "of another one")
    async with following(heads):
        await until(heads.same)
        heads.logs.forget("n1")
        await until(heads.same)
    assert set(_files(heads.there)) == {"n2.log"}


async def test_who_leads_says_what_may_be_missing(heads: Heads) -> None:
    heads.write_line("n1", "the last words")
    async with following(heads):
        await until(lambda: heads.same() and heads.follower.complete_at > 0)
    heads.follower.note_takeover("head2")
    text = (heads.there / "consoles/n1.log").read_text()
    last = f"what was said after {stamp(heads.follower.complete_at)} may be missing here"
    assert text.splitlines()[-1].endswith(f" --- head2 leads from here on; {last}")
    assert text.startswith((heads.here / "consoles/n1.log").read_text())


async def test_a_follower_takes_so_many_bytes_a_second_and_the_newest_first(
    heads: Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "BYTES_PER_S", 1 << 20)
    for node in range(80):
        heads.write_line(f"old{node}", "a boot ".ljust(60_000, "."))
    began = time.monotonic()
    live = heads.there / "consoles/live.log"
    async with following(heads):
        await until(lambda: bool(_files(heads.there)))
        heads.write_line("live", "just now")
        await until(live.exists)
        assert not heads.same()
        await until(heads.same)
    took = time.monotonic() - began
    assert took > sum(map(len, _files(heads.there).values())) / (1 << 20) - 1.5 > 2


async def test_a_leader_that_answers_nonsense_writes_nothing(heads: Heads) -> None:
    there = heads.there / "consoles"
    there.mkdir()
    (there / "n1.log").write_text("mine\n")

    answers: list[Piece] = []

    async def bad(request: web.Request) -> web.StreamResponse:
        return web.Response(body=msgspec.msgpack.encode(answers))

    async def changed(request: web.Request) -> web.StreamResponse:
        found = Changed("1", ["n1", "../../pki/ca"], False)
        return web.Response(body=msgspec.msgpack.encode(found))

    app = web.Application()
    app.router.add_get(copies.CHANGED, changed)
    app.router.add_post(copies.PIECES, bad)
    server = WebServer(app, Limits())
    await server.open(*bound_sockets([ADDRESS], 0), context=pki.serving(heads.authority))
    heads.url = f"https://{ADDRESS}:{server.port}"
    before = _files(heads.there)
    try:
        for name, at in (("../pki/ca.pem", 0), ("n2.log", 0), ("n1.log", 3), ("n1.log", -7)):
            answers[:] = [Piece(name, at, b"evil\n", False)]
            heads.follower.trouble = ""
            async with following(heads):
                await until(lambda: "was not asked for" in heads.follower.trouble)
            assert _files(heads.there) == before
    finally:
        await server.close()
    assert sorted(path.name for path in heads.there.iterdir()) == ["consoles", "pki"]


async def test_only_heads_get_logs(heads: Heads, tmp_path: Path) -> None:
    heads.write_line("n1", "secret")
    node = heads.authority.issue("n1", 1)
    assert node is not None
    (heads.there / "pki/server.pem").write_text(node["cert"])
    (heads.there / "pki/server.key").write_text(node["key"])
    async with following(heads):
        await until(lambda: "403" in heads.follower.trouble)
    assert not _files(heads.there) and not heads.asked


def test_a_piece_is_whole_lines_of_a_log_and_nothing_beside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "n1.log").write_bytes(b"one\ntwo\nhalf")
    (tmp_path / "secret").write_text("no log")
    (tmp_path / "n2.log").symlink_to(tmp_path / "secret")
    assert pieces(tmp_path, [CopyState("n1.log", 0, "")]) == [
        Piece("n1.log", 0, b"one\ntwo\n", True)
    ]
    names = ("../secret", "secret", ".log", "/etc/passwd", "n1.log/../secret", "N.log", "n2.log")
    found = pieces(tmp_path, [CopyState(name, 0, "") for name in names])
    assert found == [Piece("n2.log", GONE, b"", False)]
    assert copy_state(tmp_path, "n1.log").size == 12
    with pytest.raises(OSError, match="symbolic"):
        copy_state(tmp_path, "n2.log")
