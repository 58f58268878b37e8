"""The columns and the order that people choose for a list of nodes, against a real head."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.cli.main import main
from layercake.client.columns import KINDS, kind_of, sort_nodes
from layercake.kraken.errors import InputError
from tests.support.rollnodes import Site, on_socket


@pytest.fixture
async def site(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    async with on_socket(tmp_path, 12, socket) as found:
        yield found


async def listed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[list[str]]:
    assert await asyncio.to_thread(main, ["node", "list", *words]) == code
    return [line.split() for line in capsys.readouterr().out.splitlines()]


async def test_columns_and_their_order(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    rows = await listed(capsys, "--columns", "name,power,image,label:rack", "--sort", "-name")
    assert rows[0] == ["NAME", "POWER", "IMAGE", "LABEL:RACK"] and [
        row[0] for row in rows[1:3]
    ] == ["n11", "n10"]
    assert rows[1][1:] == ["ON", "ACTIVE", "-"] and len(rows) == 13
    names = [row[0] for row in (await listed(capsys, "--sort", "name"))[1:]]
    assert names == [f"n{number}" for number in range(12)], "as people count"
    assert len(await listed(capsys, "n[0-2]", "--columns", "name,place,serial,unchanged")) == 4
    assert (await listed(capsys, "--columns", ",".join(KINDS)))[0] == [
        name.upper() for name in KINDS
    ]


async def test_a_column_that_there_is_not(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["node", "list", "--columns", "name,pwer"]) == 2
    said = capsys.readouterr().err
    assert "cannot show the column 'pwer'" in said and "power" in said
    assert (
        await asyncio.to_thread(
            main, ["node", "list", "--json", "--columns", "name", "--sort", "label:"]
        )
        == 2
    )
    assert "label:" in json.loads(capsys.readouterr().out)["error"]


def test_times_are_sorted_as_times_and_never_comes_last() -> None:
    views = [
        {"name": name, "last_seen_s": s}
        for name, s in (("a", 5000.0), ("b", None), ("c", 9.0), ("d", 70.0))
    ]
    assert [v["name"] for v in sort_nodes(views, "seen", ())] == ["c", "d", "a", "b"]
    with pytest.raises(InputError):
        kind_of("label:", ())
