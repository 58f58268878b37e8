"""`layercake inventory`, as a person types it, over a head."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from layercake.agents import pki
from layercake.cli.main import main
from layercake.features.machines.operations import MachineRequests
from layercake.kraken.errors import Refused
from tests.history.conftest import Site

RACK = """\
# ours
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, console: ttyS0}  # the first
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, console: ttyS0, firmware: uefi}
"""
Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
async def run(
    site: Site,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> AsyncIterator[Run]:
    """Runs a command against the head; its exit code and what it printed."""
    folder = tmp_path_factory.mktemp("s")
    head = site.world.head
    head.settings = msgspec.structs.replace(head.settings, socket=str(folder / "s"), api_port=0)
    pki.create(site.world.directory / "pki", "127.0.0.1")
    api = head.api()
    await api.start()
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(folder / "s"))

    async def one(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, list(words))
        found = capsys.readouterr()
        return code, found.out + found.err

    yield one
    await api.stop()


async def test_a_day_of_changes_is_read_and_undone(site: Site, run: Run) -> None:
    code, said = await run("node", "set", "n0", "kernel_args=debug", "--reason", "ticket 7")
    assert code == 0, said
    code, said = await run("inventory", "log")
    assert code == 0 and "change kernel_args of n0" in said and "ticket 7" in said
    code, said = await run("inventory", "log", "n0", "--full")
    assert "why: ticket 7" in said and "how: PATCH /v1/nodes/n0 (" in said
    code, said = await run("inventory", "diff")
    assert said.split() == ["~", "n0", "kernel_args:", "(none)", "->", "debug"]
    code, said = await run("inventory", "blame", "n0")
    assert code == 0 and "ticket 7" in said and "ip" in said
    code, said = await run("inventory", "blame", "n0.kernel_args")
    assert code == 0 and "ticket 7" in said and "10.1.0.10" not in said
    code, said = await run("inventory", "blame", "n0.kernel")
    assert (code, said) == (1, "the inventory at HEAD says nothing of kernel of n0\n")
    code, said = await run("inventory", "blame", "n0.kernel_args", "--at", "never")
    assert code == 2 and "never" in said and "no node" not in said
    code, said = await run("inventory", "revert", "HEAD", "--plan")
    assert code == 0 and "debug -> (none)" in said
    code, said = await run("inventory", "revert", "HEAD", "--yes", "--no-wait", "-m", "wrong")
    assert code == 0, said
    code, said = await run("inventory", "show")
    assert "kernel_args" not in said and 'ip: "10.1.0.10"' in said
    code, said = await run("inventory", "rebuild", "--yes")
    assert code == 0 and "sound" in said


async def test_nodes_that_came_alike_stand_together(
    site: Site, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    racks = "".join(
        f'  {rack}{i}: {{mac: "52:54:00:aa:{number}:{i}", ip: 10.1.{number}.{i}{more}}}\n'
        for number, (rack, more) in enumerate(
            (("r", ""), ("s", ", kernel_args: quiet"), ("t", ", kernel_args: debug")), 20
        )
        for i in range(10, 13)
    )
    file = tmp_path_factory.mktemp("f") / "racks.yaml"
    file.write_text(RACK + racks)
    assert (await run("apply", str(file), "--yes", "--no-wait"))[0] == 0
    code, said = await run("inventory", "diff")
    lines = said.splitlines()
    assert code == 0 and {"+ r[10-12]", "+ s[10-12]", "+ t[10-12]"} < set(lines)
    assert lines[lines.index("+ t[10-12]") :].index("    kernel_args: debug") < 6
    assert lines.count("    of each its own: ip, mac") == 3 and "10.1.20.10" not in said
    code, said = await run("inventory", "diff", "--nodes", "r11")
    assert "+ r11" in said and "10.1.20.11" in said


async def test_what_has_moved_on_stops_a_revert(site: Site, run: Run) -> None:
    for value in ("one", "two"):
        await run("node", "set", "n0", f"kernel_args={value}")
    code, said = await run("inventory", "revert", "HEAD~1", "--yes")
    assert code == 4 and 'is "two" now' in said and "--take-back" in said
    code, said = await run("inventory", "revert", "HEAD~1", "--take-back", "--yes", "--no-wait")
    assert code == 0, said


async def test_a_value_is_written_into_the_file_that_is_in_force(
    site: Site, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("f") / "rack.yaml"
    file.write_text(RACK)
    code, said = await run("node", "set", "n0", "kernel_args=debug", "--save", str(file))
    assert code == 0 and "rack.yaml says so" in said, said
    assert file.read_text() == RACK.replace("ttyS0}  #", "ttyS0, kernel_args: debug}  #")
    code, said = await run("plan", str(file))
    assert "nothing to change" in said
    await run("node", "set", "n1", "kernel_args=other")
    code, said = await run("node", "set", "n0", "kernel_args=more", "--save", str(file))
    assert code == 2 and "differs from what is in force: n1" in said
    assert "more" not in file.read_text()
    assert "more" not in (await run("inventory", "show"))[1]


async def test_what_a_group_says_is_not_unset_in_the_file(
    site: Site, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("f") / "rack.yaml"
    text = RACK.replace("# ours", "defaults: {kernel_args: all}")
    file.write_text(text)
    assert (await run("apply", str(file), "--yes", "--no-wait"))[0] == 0
    code, said = await run("node", "set", "n0", "--unset", "kernel_args", "--save", str(file))
    assert code == 1 and "rack.yaml is as it was" in said
    assert file.read_text() == text


async def test_two_nodes_are_compared(site: Site, run: Run) -> None:
    code, said = await run("node", "compare", "n0", "n0")
    assert (code, said) == (0, "n0 and n0 are alike\n")
    await run("node", "set", "n0", "kernel_args=debug", "labels={rack: r7}")
    code, said = await run("node", "compare", "n0", "n1")
    rows = [line.split() for line in said.splitlines()]
    assert code == 1 and rows[0] == ["OF", "WHAT", "N0", "N1"]
    assert ["inventory", "kernel_args", "debug", "-"] in rows
    assert ["inventory", "firmware", "bios", "uefi"] in rows
    assert ["inventory", "labels.rack", "r7", "-"] in rows
    assert "10.1.0.10" not in said and "console" not in said
    code, said = await run("node", "compare", "n0", "n1", "--all")
    assert "10.1.0.10" in said and "52:54:00:00:00:11" in said
    code, said = await run("node", "compare", "n0", "n77")
    assert code == 2 and "cannot find node" in said


async def test_their_hardware_too_each_part_by_its_place(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dimm = {"slot": "A1", "mb": 16384, "serial": "1234"}
    disk = {"name": "nvme0n1", "bytes": 10**12, "firmware": "E1"}
    first = {"dimms": [dimm], "disks": [disk], "cards": [{"name": "eth0", "link": True}]}
    second = {
        "dimms": [{**dimm, "mb": 8192, "serial": "9"}],
        "disks": [{**disk, "firmware": "E2"}],
        "cards": [{"name": "eth0", "link": False}],
        "gpus": [{"slot": "0000:01:00.0", "model": "H100"}],
    }
    reports = {"n0": first, "n1": second}

    async def report(self: MachineRequests, name: str) -> dict[str, object]:
        return {"machine": {}, "report": reports[name]}

    monkeypatch.setattr(MachineRequests, "one", report)
    _, said = await run("node", "compare", "n0", "n1")
    rows = [line.split() for line in said.splitlines()]
    assert ["hardware", "dimms.A1.mb", "16384", "8192"] in rows
    assert ["hardware", "disks.nvme0n1.firmware", "E1", "E2"] in rows
    assert ["hardware", "gpus.0000:01:00.0.model", "-", "H100"] in rows
    assert "1234" not in said and "link" not in said


async def test_hardware_that_is_not_shown_is_left_out_for_the_reason_that_there_is(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: MachineRequests, name: str) -> dict[str, object]:
        raise Refused(f"cannot show the hardware of {name}: {name} is simulated")

    monkeypatch.setattr(MachineRequests, "one", refused)
    _, said = await run("node", "compare", "n0", "n1")
    assert "not compared: cannot show the hardware of n0: n0 is simulated" in said
    assert "you may not" not in said


async def test_many_nodes_are_labelled_in_one_change_or_none_is(site: Site, run: Run) -> None:
    code, said = await run("node", "set", "n[0-1]", "labels.rack=r7", "--reason", "ticket 8")
    assert code == 0 and said.startswith("n[0-1] is changed"), said
    code, said = await run("node", "list", "--where", "rack=r7", "--fold")
    assert said.strip() == "n[0-1]"
    code, said = await run("inventory", "log")
    assert said.count("ticket 8") == 1, "one change, by one request"
    code, said = await run("node", "set", "n[0-1]", "ip=10.1.0.77", "labels.rack=r8")
    assert code == 2 and "10.1.0.77 of n1 is n0's" in said
    code, said = await run("node", "set", "n[0,77]", "labels.rack=r8")
    assert code == 2 and "n77" in said
    code, said = await run("node", "list", "--where", "rack=r7", "--fold")
    assert said.strip() == "n[0-1]"
    code, said = await run("node", "set", "n[0-1]", "labels.rack=r7")
    assert code == 0 and said == "n[0-1] has that already\n"


async def test_what_was_before_the_history_is_refused_with_where_it_begins(
    site: Site, run: Run
) -> None:
    await run("node", "set", "n0", "kernel_args=debug")
    code, said = await run("inventory", "diff", "1970-01-01T00:00Z")
    assert code == 2 and "the history begins at 1970-01-12" in said
    code, said = await run("inventory", "log")
    first = said.split("\n")[-2].split()[0]
    code, said = await run("inventory", "revert", first, "--plan")
    assert code == 2 and "it is the first, and nothing was before it" in said
