"""The commands against the real API over a head without services: its views have what the commands
show."""

from __future__ import annotations

import asyncio
import json
import socketserver
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from layercake import __version__
from layercake.agents import pki
from layercake.cli.main import main
from layercake.client.output import YELLOW, Output
from layercake.features.access.tokens import Tokens
from tests.support.world import INVENTORY, World


def free_port() -> int:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        return int(server.server_address[1])


@pytest.fixture
async def world(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A head with two nodes, n0 joined and n1 off, whose API is open on `socket`."""
    found = World(tmp_path)
    found.open()
    found.head.settings = msgspec.structs.replace(
        found.head.settings, socket=str(socket), api_port=free_port()
    )
    pki.create(tmp_path / "pki", "127.0.0.1")
    await found.ops.inventory.apply(INVENTORY, "rack.yaml", None, False)
    found.attach("n0")
    api = found.head.api()
    await api.start()
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    yield found
    await api.stop()
    await found.close_head()
    found.client.close()


COMMANDS = [
    "status",
    "node list",
    "node list n[0-1]",
    "node show n0",
    "node explain n1",
    "node up n1",
    "node off n0 --yes",
    "node clear @all",
    "image list",
    "roll status",
    "events",
    "graph --node n0",
    "token list",
    "audit",
]


@pytest.mark.parametrize("command", COMMANDS)
async def test_every_view_can_be_shown(
    world: World, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert await asyncio.to_thread(main, command.split()) == 0
    assert capsys.readouterr().out
    assert await asyncio.to_thread(main, [*command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


async def test_explain_begins_with_what_is_wrong_with_the_head_itself(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        world.head.database.health,
        "view",
        lambda store: {
            "well": False,
            "trouble": "cannot write the database: database or disk is full",
            "waiting": 1,
            "since_s": 1.0,
        },
    )
    await world.ops.care.freeze("", "the cooling is off", "ann")
    await asyncio.to_thread(main, ["explain"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FROZEN by ann: the cooling is off"
    assert "the database is unwell: cannot write the database: database or disk is full" in lines
    monkeypatch.setattr(
        Output, "styled", lambda out, text, style: f"\x1b[{style}m{text}\x1b[0m" if style else text
    )
    await asyncio.to_thread(main, ["explain"])
    shown = capsys.readouterr().out
    assert "\\x1b" not in shown and shown.startswith(
        f"\x1b[{YELLOW}mFROZEN by ann: the cooling is off\x1b[0m\n"
    )
    assert "1 node is as wanted" in lines[-1] or "nodes are as wanted" in lines[-1]


async def test_a_plan_is_made_and_applied(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(INVENTORY.replace("firmware: uefi", "firmware: bios"))
    assert await asyncio.to_thread(main, ["plan", str(file)]) == 0
    assert "firmware: uefi -> bios" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["apply", str(file), "--yes", "--no-wait"]) == 0
    assert world.node("n1").node.firmware == "bios"
    file.write_text("nodes: {n0: {mak: x}}\n")
    assert await asyncio.to_thread(main, ["plan", str(file)]) == 2
    assert "mak" in capsys.readouterr().err


async def test_a_node_is_renamed_here_and_in_the_file(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.send(world.hello("n0"))
    file = tmp_path / "rack.yaml"
    file.write_text(INVENTORY + "  # the last one\n")
    assert await asyncio.to_thread(main, ["node", "rename", "n0", "gpu0", "--plan"]) == 0
    assert capsys.readouterr().out == (
        "n0 -> gpu0: at once in lists and in the DNS; its own host name at the next boot\n"
    )
    assert world.head.store.names == ["n0", "n1"]
    words = ["node", "rename", "n[0-1]", "m[0-1]", "--save", str(file), "--reason", "cards"]
    assert await asyncio.to_thread(main, [*words, "--yes"]) == 0
    said = capsys.readouterr()
    assert f"n[0-1]: renamed to m[0-1], and {file} says so" in said.out
    assert "n1 -> m1\n" in said.out + said.err
    wanted = INVENTORY.replace("  n0:", "  m0:").replace("  n1:", "  m1:")
    assert file.read_text() == wanted + "  # the last one\n"
    assert await asyncio.to_thread(main, ["plan", str(file)]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["node", "rename", "m0", "m1", "--yes"]) == 4
    assert "cannot rename m0: there is m1 already" in capsys.readouterr().err
    file.write_text(INVENTORY)
    words = ["node", "rename", "m0", "x0", "--save", str(file), "--yes"]
    assert await asyncio.to_thread(main, words) == 2
    assert "it differs from what is in force" in capsys.readouterr().err
    assert world.head.store.names == ["m0", "m1"]


async def test_what_does_not_exist_is_exit_2(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        ["node", "show", "n9"],
        ["image", "remove", "none", "--yes"],
        ["node", "list", "n9"],
        ["roll", "status", "9"],
    ):
        assert await asyncio.to_thread(main, command) == 2
        assert "cannot" in capsys.readouterr().err


async def test_a_token_is_made_used_over_the_network_and_revoked(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, network = (
        tmp_path / "ann.token",
        [
            "--url",
            f"https://127.0.0.1:{world.head.settings.api_port}",
            "--ca",
            str(tmp_path / "pki" / "ca.pem"),
            "--token-file",
            str(tmp_path / "ann.token"),
        ],
    )
    made = [
        "token",
        "create",
        "ann",
        "--role",
        "operator",
        "--group",
        "left",
        "--expires",
        "30d",
        "--file",
        str(file),
    ]
    assert await asyncio.to_thread(main, made) == 2, "no node is in that group"
    assert "no node of the inventory is in it" in capsys.readouterr().err
    await world.ops.inventory.apply(
        INVENTORY.replace("ip: 10.1.0.10", "ip: 10.1.0.10, groups: [left]").replace(
            "nodes:", "groups: {left: {}}\nnodes:"
        ),
        "rack.yaml",
        None,
        False,
    )
    assert await asyncio.to_thread(main, made) == 0
    assert (
        file.stat().st_mode & 0o777,
        file.read_text().strip() in "".join(capsys.readouterr()),
    ) == (0o600, False)
    assert await asyncio.to_thread(main, [*network, "node", "clear", "@all"]) == 0
    assert await asyncio.to_thread(main, [*network, "node", "clear", "n1"]) == 4
    assert "the groups left" in capsys.readouterr().err
    assert await asyncio.to_thread(main, [*network, "token", "list"]) == 4
    assert await asyncio.to_thread(main, ["token", "revoke", "ann", "--yes"]) == 0
    assert await asyncio.to_thread(main, [*network, "node", "list"]) == 4
    assert (
        await asyncio.to_thread(
            main, ["token", "create", "bob", "--role", "viewer", "--expires", "never"]
        )
        == 0
    )
    text = capsys.readouterr().out.splitlines()[-1]
    assert world.head.part(Tokens).find(text) is not None, "alone on the last line"


async def test_the_audit_log_is_exported_whole(
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("layercake.features.access.commands.AUDIT_PAGE", 2)
    for _ in range(5):
        assert await asyncio.to_thread(main, ["node", "clear", "n0"]) == 0
    file = tmp_path / "audit.jsonl"
    assert await asyncio.to_thread(main, ["audit", "--export", str(file)]) == 0
    found = [json.loads(line) for line in file.read_text().splitlines()]
    expected = ("POST /v1/nodes/clear", f"layercake/{__version__}", 200)
    assert [(r["request"], r["program"], r["status"]) for r in found] == [expected] * 5
    assert file.stat().st_mode & 0o777 == 0o600
    assert await asyncio.to_thread(main, ["audit", "--export", str(file)]) == 2, (
        "it takes the place of nothing"
    )
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["audit", "--since", "soon"]) == 2
