"""Consoles through the head's API and the command line, over a real service of powerman's and a BMC
on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.console.conftest import Room, opened, until
from tests.support.api import served, token
from tests.support.disk import on_disk
from tests.support.pseudo import Serial
from tests.support.world import INVENTORY, World

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """The BMC's side."""
    (tmp_path / "powerman").mkdir()
    async with opened(tmp_path / "powerman", known=False) as found:
        yield found


@pytest.fixture
async def world(tmp_path: Path, room: Room) -> AsyncIterator[World]:
    """A head whose n0 has that console; calls reach the service as over the module API."""
    found = World(tmp_path)
    found.open()
    await found.ops.inventory.apply(INVENTORY, "rack.yaml", None, False)

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        return json.loads(
            json.dumps(await room.service.call(method, json.loads(json.dumps(params))))
        )

    found.head.modules.host.call = ask  # type: ignore[method-assign]
    for name in ("n0", "n1"):
        key = found.node(name).node.id
        bmc = {
            "driver": "ipmi",
            "address": "127.0.0.1",
            "port": room.bmc.port,
            "username": "admin",
            "password": "pw",
        }
        await room.service.node_changed(
            key, {"name": name, "firmware": "bios", "bmc": bmc if name == "n0" else None}
        )
    await room.service.node_removed("n1")
    await room.service.call("power.refresh", {"node": found.node("n0").node.id})
    await until("it is open", lambda: room.sol.owner)
    yield found
    await found.close_head()
    found.client.close()


@pytest.fixture
async def api(world: World) -> AsyncIterator[Any]:
    """Its API."""
    async with served(world.head, local=False) as client:
        yield client


async def heard(socket: Any, wanted: bytes) -> dict[str, Any]:
    """Reads until that was written; how the console was last."""
    got, how = b"", dict[str, Any]()
    async with asyncio.timeout(60):
        while wanted not in got:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                got += message.data
            else:
                assert message.type is aiohttp.WSMsgType.TEXT, message
                how = json.loads(message.data)
    return how


async def test_one_writes_and_another_reads(world: World, api: Any, room: Room) -> None:
    admin, viewer = (
        await token(world.head, "root", "admin", may_exec=True),
        await token(world.head, "eve", "operator"),
    )
    async with (
        api.ws_connect("/v1/nodes/n0/console/write", headers=admin) as one,
        api.ws_connect("/v1/nodes/n0/console", headers=viewer) as other,
    ):
        room.sol.write(b"login: ")
        how = await heard(one, b"login: ")
        assert how["state"] == "open" and how["writes"] and how["writer"].startswith("root")
        await heard(other, b"login: ")
        await one.send_bytes(b"root\r")
        await until("it was typed", lambda: room.sol.typed == b"root\r")
        await one.send_str('{"break": true}')
        await until("a break", lambda: room.sol.breaks == 1)
        await other.send_bytes(b"rm -rf /\r")
        async with asyncio.timeout(60):
            while "error" not in (told := json.loads(await other.receive_str())):
                pass
        assert "for reading only" in told["error"] and room.sol.typed == b"root\r"
    await until(
        "the history says who left",
        lambda: (
            [e.kind for e in world.head.store.events if e.kind.startswith("node.console")]
            == ["node.console", "node.console-left"]
        ),
    )
    assert any(
        "/console/write" in str(row) for row in on_disk(world.directory, "SELECT * FROM audit")
    )


@pytest.mark.parametrize(
    ("role", "may_exec", "path", "status"),
    [
        ("viewer", True, "console", 403),
        ("viewer", True, "console/log", 403),
        ("operator", False, "console/write", 403),
        ("operator", False, "console/log", 200),
        ("operator", True, "console/write", 400),
    ],
)
async def test_who_may(
    world: World, api: Any, room: Room, role: str, may_exec: bool, path: str, status: int
) -> None:
    headers = await token(world.head, "somebody", role, may_exec=may_exec)
    async with api.get(f"/v1/nodes/n0/{path}", headers=headers) as answer:
        assert answer.status == status, await answer.text()


async def test_what_was_kept_is_found_and_harmless(world: World, api: Any, room: Room) -> None:
    headers = await token(world.head, "op", "operator")
    room.sol.write(b"\x1b]0;owned\x07\x1b[31mKernel panic - not syncing\x1b[0m\r\nnext\r\n")
    await until("all is acknowledged", lambda: room.sol.idle)
    async with api.get("/v1/nodes/n0/console/log", headers=headers) as answer:
        assert [line["text"] for line in (await answer.json())["lines"]][-2:] == [
            "Kernel panic - not syncing",
            "next",
        ]
    async with api.get(
        "/v1/consoles/search?range=@all&pattern=kernel&ignore_case=1", headers=headers
    ) as answer:
        found = await answer.json()
        assert [(m["node"], m["text"]) for m in found["matches"]] == [
            ("n0", "Kernel panic - not syncing")
        ] and not found["more"]
    async with api.get("/v1/consoles?range=@all", headers=headers) as answer:
        states = {c["node"]: c["state"] for c in (await answer.json())["consoles"]}
        assert states == {"n0": "open", "n1": "none"}
    for query in ("range=@all&pattern=", "pattern=x", "range=@all&pattern=(&regex=1"):
        async with api.get(f"/v1/consoles/search?{query}", headers=headers) as answer:
            assert answer.status == 400


async def test_explain_says_what_the_console_said_last(world: World, api: Any, room: Room) -> None:
    room.sol.write(b"VFS: Unable to mount root fs\x1b[2J\r\n")
    await until("all is acknowledged", lambda: room.sol.idle)
    async with api.get(
        "/v1/nodes/n0/explain", headers=await token(world.head, "op", "operator")
    ) as answer:
        told = await answer.json()
    assert (
        told["explanation"]["console"][-1].endswith("VFS: Unable to mount root fs")
        and "the console said last" in told["text"]
    )
    async with api.get(
        "/v1/nodes/n0/explain", headers=await token(world.head, "eve", "viewer")
    ) as answer:
        assert (await answer.json())["explanation"]["console"] == []


async def test_a_console_goes_on_over_a_restart_of_the_module(
    world: World, api: Any, room: Room
) -> None:
    headers, key = await token(world.head, "op", "operator"), world.node("n0").node.id
    async with api.ws_connect("/v1/nodes/n0/console", headers=headers) as one:
        room.sol.write(b"before")
        await heard(one, b"before")
        for reader in list(room.service.consoles.of(key).readers.readers):
            room.service.consoles.of(key).readers.detach(
                reader
            )  # one that starts anew knows of no readers
        room.sol.write(b"after")
        await heard(one, b"after")


async def test_the_command_in_a_terminal(world: World, room: Room, tmp_path: Path) -> None:
    async with served(world.head, local=True) as client:
        socket, terminal = str(client.connector.path), Serial()
        command = [sys.executable, "-m", "layercake.cli.main", "--socket", socket, "console"]
        process = subprocess.Popen(
            [*command, "n0"],
            stdin=terminal.other,
            stdout=terminal.other,
            stderr=terminal.other,
            cwd=ROOT,
        )
        try:
            await until(
                "it says how to leave",
                lambda: b"q leaves" in terminal.got and b"you have the keyboard" in terminal.got,
            )
            room.sol.write(b"\x1b[1mlogin:\x1b[0m ")
            await until("it is shown as it is", lambda: b"\x1b[1mlogin:\x1b[0m " in terminal.got)
            room.sol.write(b"\r\n")
            os.write(terminal.handle, b"root\r\x1d\x1d\x1db")
            await until(
                "it was typed", lambda: room.sol.typed == b"root\r\x1d" and room.sol.breaks == 1
            )
            os.write(terminal.handle, b"\x1dw\x1dq")
            await until("it has left", lambda: process.poll() == 0)
            assert b"left the console" in terminal.got
        finally:
            process.kill()
            process.wait()
            terminal.close()
        for words, wanted in (
            (["n0", "--log"], "login:"),
            (["--grep", "login"], "n0: "),
            ([], "open"),
        ):
            done = await asyncio.to_thread(
                subprocess.run, [*command, *words], capture_output=True, text=True, cwd=ROOT
            )
            assert done.returncode == 0 and wanted in done.stdout and "\x1b" not in done.stdout, (
                done
            )
