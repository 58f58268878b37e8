"""`layercake watch`: what is seen of a rack, and that it is seen as it changes."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.cli import watch as rackwatch
from layercake.cli.main import main
from layercake.cli.watch import NOTHING, Rack, picture
from layercake.client.output import Output
from layercake.client.watch import poll
from layercake.inventory.ranges import fold
from tests.support.rollnodes import Site, on_socket

QUIET: dict[str, Any] = {
    "guard": {"frozen": None, "outages": []},
    "services": [],
    "database": {"well": True},
}


def view(
    name: str, status: str = "converged", group: str = "rack1", power: str = "ON"
) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "groups": [group] if group else [],
        "state": {"power": power},
    }


def answer(
    *nodes: dict[str, Any], whole: bool = True, removed: tuple[str, ...] = (), change: str = "a-1"
) -> dict[str, Any]:
    return {"nodes": list(nodes), "whole": whole, "removed": list(removed), "change": change}


def seen(
    rack: Rack,
    *,
    status: dict[str, Any] = QUIET,
    causes: Any = NOTHING,
    rolls: Any = (),
    width: int = 60,
    height: int = 20,
) -> list[str]:
    out = Output()
    out.colour = False
    return picture(rack, status, causes, rolls, out, width, height)


def test_each_node_is_a_letter_in_the_row_of_its_group() -> None:
    rack = Rack()
    rack.apply_answer(
        answer(
            view("n10", "quarantined"),
            view("n2"),
            view("n1", power="OFF"),
            view("m1", "held", group=""),
        )
    )
    lines = seen(rack)
    assert lines[0] == "4 nodes: 2 converged, 1 quarantined, 1 held"
    assert [re.sub(" +", " ", line) for line in lines[2:4]] == ["- 1 H", "rack1 3 o●Q"], (
        "n10 stands after n2"
    )


def test_only_what_changes_is_told_and_what_is_gone_is_gone() -> None:
    rack = Rack()
    assert rack.apply_answer(answer(view("n1"), view("n2"))) == ["2 nodes: 2 converged"]
    assert rack.apply_answer(answer(view("n1", "working"), whole=False, change="a-2")) == [
        "n1  converged -> working"
    ]
    assert rack.change == "a-2" and rack.counts == {"working": 1, "converged": 1}
    assert rack.apply_answer(answer(whole=False, removed=("n1",))) == ["n1  gone"]
    assert rack.apply_answer(answer(view("n3"))) == ["n2  gone"] and rack.counts == {"converged": 1}


def test_trouble_comes_first_and_a_large_rack_is_counted() -> None:
    rack = Rack()
    rack.apply_answer(
        answer(
            *(
                view(f"n{i}", "quarantined" if i % 7 == 0 else "converged", f"r{i // 500}")
                for i in range(10_000)
            )
        )
    )
    outage = {"where": "group r1", "seconds": 61, "silent": 400, "members": 500}
    causes = {
        "causes": [
            {"status": "silent", "text": "the outage that stands on top", "nodes": ["n1"]},
            {
                "status": "quarantined",
                "text": "no DISCOVER\x1b[2J",
                "range": "n[0,7]",
                "nodes": ["n0", "n7"],
                "longest_s": 180,
                "next": "mend it",
                "command": "layercake node clear n[0,7]",
            },
        ],
        "well": 9,
    }
    roll: dict[str, Any] = {
        "id": 4,
        "image": "b:2",
        "state": "rolling",
        "stage": 1,
        "stages": ["all"],
        "batch": 2,
        "counts": {"done": 7},
        "reason": "",
    }
    rolls = [roll, {**roll, "id": 3, "state": "done"}]
    guard = {"frozen": {"by": "ada", "reason": "a look"}, "outages": [outage]}
    status = {**QUIET, "guard": guard, "services": [{"name": "pxe", "state": "failed"}]}
    lines = seen(rack, status=status, causes=causes, rolls=rolls)
    assert (
        lines[1].startswith("FROZEN by ada")
        and "400 of 500 nodes are silent" in lines[2]
        and "pxe is failed" in lines[3]
    )
    assert len(lines) <= 19 and "more groups" in "\n".join(lines) and "\x1b" not in "".join(lines)
    assert "r0                 500  428 converged, 72 quarantined" in lines
    assert any(line.startswith("2 quarantined for 3m: no DISCOVER") for line in lines)
    assert any("next: layercake node clear n[0,7]" in line for line in lines)
    assert lines[-1].startswith("roll 4 to b:2") and "roll 3" not in "".join(lines)


def test_a_command_that_does_not_fit_is_not_cut_off() -> None:
    nodes = [f"n{number}" for number in range(0, 400, 3)]
    cause = {
        "status": "quarantined",
        "text": "no DISCOVER",
        "range": fold(nodes),
        "nodes": nodes,
        "longest_s": 180,
        "next": "mend it, and have it tried again",
        "command": f"layercake node clear {fold(nodes)}",
    }
    lines = seen(Rack(), causes={"causes": [cause], "well": 9})
    assert lines[-1] == "    next: mend it, and have it tried again: layercake explain"
    assert "134 quarantined for 3m: no DISCOVER" in lines


@pytest.fixture
async def site(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    async with on_socket(tmp_path, 3, socket) as found:
        yield found


async def test_a_head_is_watched(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node is wanted off meanwhile: it is told that it is on its way."""
    enough = threading.Event()

    def until(out: Output, ask: Any, timeout: float | None, gap: float) -> Iterator[Any]:
        for look in poll(out, ask, timeout, 0.05):
            yield look
            if enough.is_set():
                return

    monkeypatch.setattr(rackwatch, "poll", until)
    watching = asyncio.create_task(asyncio.to_thread(main, ["watch"]))
    told = ""
    while "nodes:" not in told:
        await asyncio.sleep(0.02)
        told += capsys.readouterr().out
    first = next(iter(site.world.head.store)).name
    assert await asyncio.to_thread(main, ["node", "off", first, "--yes"]) == 0
    while f"{first}  converged -> " not in told:
        await asyncio.sleep(0.02)
        told += capsys.readouterr().out
        assert not watching.done(), told
    enough.set()
    assert await watching == 0
