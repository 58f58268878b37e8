"""Consoles through the whole service, over a BMC on loopback with the quirks of real ones."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable
from powerman.console import console as console_module
from powerman.console import consoles, logs
from powerman.console.console import again_s
from powerman.driver import LoginRefused, NoSession, Taken, Unsupported
from powerman.settings import ConsoleSettings, PowerSettings
from tests.console.conftest import Opened, Room, until
from tests.support.minisol import MiniSol

TEXT = b"".join(b"[%5d.000000] line %d of a boot\r\n" % (n, n) for n in range(300))
LINES = TEXT.decode().splitlines()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended is tried again at once."""
    monkeypatch.setattr(consoles, "again_s", lambda error, failures: 0.05)


async def follow(room: Room, reader: str, wanted: bytes, position: int = 0) -> dict[str, Any]:
    """Reads until it was written; the last piece."""
    got = b""
    async with asyncio.timeout(60):
        while wanted not in got:
            piece: dict[str, Any] = await room.service.call(
                "console.follow",
                {"node": "n1", "reader": reader, "position": position, "wait_s": 1.0},
            )
            got, position = got + base64.b64decode(piece["data"]), piece["position"]
    return piece


async def attach(room: Room, who: str, **how: Any) -> str:
    """A reader's id."""
    found = await room.service.call("console.attach", {"node": "n1", "who": who, **how})
    return str(found["reader"])


async def type_in(room: Room, reader: str, text: bytes, **more: Any) -> int:
    """Types."""
    asked = {"node": "n1", "reader": reader, "data": base64.b64encode(text).decode(), **more}
    return int((await room.service.call("console.write", asked))["taken"])


@pytest.mark.parametrize("loses", [0, 3], ids=["all arrives", "each third packet is lost"])
async def test_what_the_machine_says_is_kept(room: Opened, loses: int) -> None:
    async with room(sol=MiniSol(piece=200, loses=loses)) as one:
        one.sol.write(TEXT)
        await until("all is acknowledged", lambda: one.sol.idle)
        assert await one.log(1000) == LINES
        assert (one.directory / "consoles/n1.log").stat().st_mode & 0o777 == 0o600
        assert not one.events("power.console-lost", "power.console-taken")


async def test_one_reads_and_types_and_another_reads_too(room: Opened) -> None:
    async with room() as one:
        await one.reached("open")
        alice, bob = await attach(one, "alice", write=True), await attach(one, "bob", write=True)
        one.sol.write(b"login: ")
        piece = await follow(one, alice, b"login: ")
        assert (piece["writer"], piece["readers"], piece["writes"]) == (
            "alice",
            ["alice", "bob"],
            True,
        )
        assert not (await follow(one, bob, b"login: "))["writes"]
        assert await type_in(one, alice, b"root\r") == 5
        await until("it was typed", lambda: one.sol.typed == b"root\r")
        with pytest.raises(Refused, match="alice has the keyboard"):
            await type_in(one, bob, b"rm -rf /\r")
        await type_in(one, bob, b"x", take=True)
        await until("bob types", lambda: one.sol.typed == b"root\rx")
        await type_in(one, bob, b"", send_break=True)
        await until("a break", lambda: one.sol.breaks == 1)
        state = await one.service.call("console.state", {"node": "n1"})
        assert (state["state"], state["writer"], state["readers"]) == (
            "open",
            "bob",
            ["alice", "bob"],
        )


async def test_a_bmc_that_cannot_take_what_is_typed_gets_it_again(room: Opened) -> None:
    async with room(sol=MiniSol(refuses=3)) as one:
        await one.reached("open")
        await type_in(one, await attach(one, "alice", write=True), b"reboot\r")
        await until("it was typed once", lambda: one.sol.typed == b"reboot\r")


async def test_a_bmc_that_hangs_is_left_and_tried_again(
    room: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerman.ipmi.sol.WAITS_S", (0.05,) * 6)
    async with room(sol=MiniSol(hangs=True)) as one:
        await one.reached("open")
        reader = await attach(one, "alice", write=True)
        await type_in(one, reader, b"anybody?\r")
        await until(
            "the note",
            lambda: (
                "takes nothing" in (one.directory / "consoles/n1.log").read_text()
                if (one.directory / "consoles/n1.log").exists()
                else False
            ),
        )
        one.sol.hangs = False
        await one.reached("open")
        one.sol.write(b"here I am\r\n")
        await follow(one, reader, b"here I am")


async def test_somebody_elses_console_is_left_to_them_and_said_so_once(room: Opened) -> None:
    async with room(sol=MiniSol(holder=7)) as one:
        await one.reached("taken")
        assert not one.events("power.console-taken"), "it may be a session of ours before a crash"
        assert one.console.by == "user 'alice' at 192.0.2.9"
        asked = len(one.bmc.commands)
        await until("it is tried again", lambda: len(one.bmc.commands) > asked + 20)
        (text,) = one.events("power.console-taken")
        assert (
            "user 'alice' at 192.0.2.9 has it" in text and "--take" in text and one.sol.holder == 7
        )
        troubles = await one.service.call("console.troubles", {})
        ((node, why),) = troubles["lost"]
        assert node == "n1" and "user 'alice' at 192.0.2.9 has it" in why and not troubles["logs"]
        one.sol.holder = 0
        await one.reached("open")
        assert one.events("power.console-back") == ["the console is open again"]
        assert (await one.service.call("console.troubles", {}))["lost"] == []


async def test_it_is_taken_when_a_person_says_so(room: Opened) -> None:
    async with room(sol=MiniSol(holder=7)) as one:
        await one.reached("taken")
        reader = await attach(one, "bob", write=True)
        with pytest.raises(Unreachable, match=r"user 'alice' at 192\.0\.2\.9 has it"):
            await type_in(one, reader, b"x")
        await type_in(one, reader, b"", take=True)
        await until("it is open", lambda: one.console.state.value == "open")
        one.sol.write(b"mine\r\n")
        await follow(one, reader, b"mine")


async def test_one_who_takes_it_from_us_is_found_out(
    room: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerman.ipmi.console.KEEP_S", 0.1)
    async with room() as one:
        await one.reached("open")
        one.sol.deactivate()
        one.sol.holder = 7
        await one.reached("taken")
        await until("it is told", lambda: one.events("power.console-taken"))
        assert "has it" in one.events("power.console-taken")[0]


async def test_a_console_that_the_bmc_ends_is_opened_anew_without_a_word(room: Opened) -> None:
    async with room() as one:
        await one.reached("open")
        one.sol.write(b"before\r\n")
        await until("all is acknowledged", lambda: one.sol.idle)
        first = one.sol.owner
        one.sol.end()
        await until("another session has it", lambda: one.sol.owner not in (b"", first))
        one.sol.write(b"after\r\n")
        await until("all is acknowledged", lambda: one.sol.idle and one.sol.owner)
        assert await one.log() == ["before", "after"]
        assert not one.events("power.console-lost", "power.console-back")


async def test_a_bmc_with_one_session_switches_power_and_has_its_console_back(room: Opened) -> None:
    async with room(sessions=1) as one:
        await one.reached("open")
        one.sol.write(b"running\r\n")
        await until("all is acknowledged", lambda: one.sol.idle)
        assert (await one.service.call("power.refresh", {"node": "n1"}))["power"] == "OFF"
        await until(
            "it has given way",
            lambda: (
                (one.directory / "consoles/n1.log").exists()
                and "needed for the power" in (one.directory / "consoles/n1.log").read_text()
            ),
        )
        await one.reached("open")


@pytest.mark.parametrize(
    ("settings", "bmc", "state"),
    [
        ("off", {}, "off"),
        ("log", {"console": "off"}, "off"),
        ("attach", {}, "idle"),
        ("off", {"console": "attach"}, "idle"),
        ("off", {"console": "log"}, "open"),
    ],
)
async def test_the_inventory_says_whether_and_the_settings_for_all_others(
    room: Opened, settings: Any, bmc: dict[str, Any], state: str
) -> None:
    async with room(settings=PowerSettings(console=ConsoleSettings(keep=settings)), bmc=bmc) as one:
        await one.reached(state)
        if state == "off":
            with pytest.raises(LayercakeError, match="it is off"):
                await attach(one, "alice")
            assert (0x06, 0x48) not in one.bmc.commands
        else:
            reader = await attach(one, "alice", write=True)
            await one.reached("open")
            one.sol.write(b"hello\r\n")
            await follow(one, reader, b"hello")


async def test_a_bmc_without_a_console_is_no_trouble(room: Opened) -> None:
    async with room() as one:
        one.bmc.sol = None
        await one.reached("none")
        assert "no Serial over LAN" in one.console.why and not one.events("power.console-lost")
        assert (await one.service.call("power.refresh", {"node": "n1"}))["power"] == "OFF"


async def test_nothing_is_opened_before_the_bmc_has_answered(room: Opened) -> None:
    async with room(known=False) as one:
        await one.reached("waiting")
        assert not one.bmc.used
        await one.service.call("power.refresh", {"node": "n1"})
        await one.reached("open")


async def test_a_full_disk_is_told_once_and_its_end_too(
    room: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consoles, "_TROUBLE_S", 0.05)
    async with room() as one:
        await one.reached("open")
        spare, none = logs.SPARE, 1 << 60
        monkeypatch.setattr(logs, "SPARE", none)
        monkeypatch.setattr(logs, "_PENDING", 2000)
        one.sol.write(TEXT)
        await until("all is acknowledged", lambda: one.sol.idle)
        await until("it is told", lambda: one.events("power.console-log"))
        monkeypatch.setattr(logs, "SPARE", spare)
        monkeypatch.setattr(logs, "_PENDING", 1 << 20)
        await until("it is told", lambda: one.events("power.console-log-back"))
        one.sol.write(b"after\r\n")
        await until("all is acknowledged", lambda: one.sol.idle)
        assert (await one.log())[-1] == "after"
        assert "bytes were not kept here" in (one.directory / "consoles/n1.log").read_text()
        assert (
            len(one.events("power.console-log")) == len(one.events("power.console-log-back")) == 1
        )


async def test_a_data_directory_that_is_not_there_harms_nothing_else(
    tmp_path: Path, room: Opened
) -> None:
    async with room(settings=PowerSettings()) as one:
        (tmp_path / "consoles").write_text("in the way")
        await one.reached("open")
        await until("it is told", lambda: one.events("power.console-log"))
        assert (await one.service.call("power.refresh", {"node": "n1"}))["power"] == "OFF"


async def test_a_node_that_is_gone_gives_its_console_back(room: Opened) -> None:
    async with room() as one:
        await one.reached("open")
        await one.service.node_removed("n1")
        assert one.sol.owner == b"" and not one.bmc.keys


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Unsupported("x"), [3600.0, 3600.0]),
        (LoginRefused("x"), [600.0, 600.0]),
        (Taken("x", by="y"), [15.0, 30.0]),
        (OperationFailed("x"), [3.0, 6.0]),
        (NoSession("x"), [30.0, 60.0]),
        (Unreachable("x"), [3.0, 6.0]),
    ],
)
def test_how_long_each_is_left_alone(error: LayercakeError, waits: list[float]) -> None:
    assert [again_s(error, failures) for failures in (1, 2)] == waits
    assert again_s(error, 50) <= 3600.0 and console_module.PIECE >= 1024


async def test_a_log_is_written_before_it_is_said_which_have_changed(room: Opened) -> None:
    async with room() as one:
        await one.reached("open")
        before = await one.service.call("console.written", {})
        assert before["names"] is None
        one.sol.write(b"login failed\r\n")
        await until("it has come", lambda: one.sol.idle)
        now = await one.service.call("console.written", {"since": before["now"]})
        assert now["names"] == ["n1"]
        assert "login failed" in (one.directory / "consoles/n1.log").read_text()
