"""The socket of this machine, by real processes of real users: the kernel says who they are, and
nobody else gets in."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from layercake.agents import pki
from layercake.api.server import Api
from layercake.features.access.audit import Audit
from layercake.kraken.errors import InputError
from tests.support.world import World

pytestmark = pytest.mark.root
NOBODY, GROUP = pwd.getpwnam("nobody"), grp.getgrnam("games")
PYTHON = str(Path(sys.executable).resolve())  # one that other users may run
ASK = """
import http.client, json, socket, sys
made = http.client.HTTPConnection("head")
made.sock = socket.socket(socket.AF_UNIX)
try:
    made.sock.connect(sys.argv[1])
except OSError as error:
    sys.exit(print(json.dumps([0, error.strerror])))
made.request(sys.argv[2], sys.argv[3], sys.argv[4] or None, {"User-Agent": "ask/1"})
answer = made.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


async def ask(
    path: Path,
    method: str,
    route: str,
    body: str = "",
    *,
    user: int = 0,
    group: int = 0,
    groups: tuple[int, ...] = (),
) -> tuple[int, str]:
    """What a process of this user and these groups is answered; (0, why) if it cannot connect."""
    done = await asyncio.to_thread(
        subprocess.run,
        [PYTHON, "-I", "-S", "-c", ASK, str(path), method, route, body],
        user=user,
        group=group,
        extra_groups=groups,
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    status, text = json.loads(done.stdout)
    return status, text


@pytest.fixture
async def path(world: World) -> AsyncIterator[Path]:
    """Where the socket is: a directory that the API makes, under one that everybody may pass."""
    folder = Path(tempfile.mkdtemp(prefix="lc"))
    folder.chmod(0o711)
    pki.create(world.directory / "pki", "127.0.0.1")
    yield folder / "run" / "s"
    shutil.rmtree(folder)


async def opened(world: World, path: Path, **settings: Any) -> Api:
    world.head.settings = msgspec.structs.replace(world.head.settings, socket=str(path), **settings)
    api, before = world.head.api(), os.umask(0o077)  # as `serve` has it
    try:
        await api.start()
    finally:
        os.umask(before)
    return api


async def test_by_default_it_is_for_root_alone(world: World, path: Path) -> None:
    api = await opened(world, path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert (await ask(path, "GET", "/v1/tokens"))[0] == 200
        assert await ask(path, "GET", "/v1/status", user=NOBODY.pw_uid, group=NOBODY.pw_gid) == (
            0,
            "Permission denied",
        )
        path.chmod(0o666)  # somebody was careless: the kernel's word still counts
        for groups in ((), (0,), (GROUP.gr_gid,)):
            status, told = await ask(
                path, "GET", "/v1/status", user=NOBODY.pw_uid, group=NOBODY.pw_gid, groups=groups
            )
            assert (status, "cannot serve nobody: the socket is for root" in told) == (403, True), (
                told
            )
    finally:
        await api.stop()


@pytest.mark.parametrize("umask", [0o000, 0o777])
async def test_it_is_never_open_to_others_not_even_for_a_moment(
    world: World, path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        world.head.settings = msgspec.structs.replace(world.head.settings, socket=str(path))
        api = world.head.api()
        path.parent.mkdir()
        await api.start()
        assert path.stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)
    await api.stop()


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_a_group_is_let_in_with_its_role_and_named(
    world: World, path: Path, role: str
) -> None:
    api = await opened(world, path, socket_group=GROUP.gr_name, socket_role=role)
    try:
        assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o660, GROUP.gr_gid)
        member: dict[str, Any] = {
            "user": NOBODY.pw_uid,
            "group": NOBODY.pw_gid,
            "groups": (GROUP.gr_gid,),
        }
        assert (await ask(path, "GET", "/v1/nodes", **member))[0] == 200
        clear = '{"range": "phys0"}'
        assert (await ask(path, "POST", "/v1/nodes/clear", clear, **member))[0] == (
            200 if role == "operator" else 403
        )
        assert (await ask(path, "POST", "/v1/nodes/phys0/exec", '{"command": ["id"]}', **member))[
            0
        ] == 403
        assert (await ask(path, "GET", "/v1/audit", **member))[0] == 403
        primary: dict[str, Any] = {"user": NOBODY.pw_uid, "group": GROUP.gr_gid}
        assert (await ask(path, "GET", "/v1/nodes", **primary))[0] == 200
        assert await ask(path, "GET", "/v1/nodes", user=NOBODY.pw_uid, group=NOBODY.pw_gid) == (
            0,
            "Permission denied",
        )
        kept = await world.head.part(Audit).read(0, 0.0, 10)
        found = [(r.by, r.kind, r.role, r.program) for r in kept]
        assert found == ([("nobody", "local", role, "ask/1")] if role == "operator" else [])
    finally:
        await api.stop()


async def test_a_group_that_is_none_is_named(world: World, path: Path) -> None:
    with pytest.raises(InputError, match="no such group"):
        await opened(world, path, socket_group="no-such-group")
    assert not path.exists()


async def test_the_socket_s_people_are_no_callers_of_the_network(world: World, path: Path) -> None:
    """The local door never serves a connection that is none of a Unix socket."""
    async with (
        TestClient(TestServer(world.head.api().application(local=True))) as client,
        client.get("/v1/nodes") as answer,
    ):
        assert answer.status == 401
