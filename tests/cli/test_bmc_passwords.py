"""`layercake power password` at a head whose BMCs are played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from layercake.cli.main import main
from layercake.kraken.errors import Unreachable
from tests.support.rollnodes import Site, inventory, on_socket


@pytest.fixture
async def site(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    async with on_socket(tmp_path, 4, socket) as found:
        secrets = found.world.head.vault.directory
        secrets.mkdir(parents=True, exist_ok=True)
        (secrets / "bmc").write_text("old-one\n")
        login = f"bmc: {{username: admin, password: {{file: {secrets}/bmc}}, "
        text = inventory(4, "one").replace("bmc: {", login)
        await found.world.ops.inventory.apply(text, "rack.yaml", None, True)
        yield found


async def command(*words: str) -> int:
    return await asyncio.to_thread(main, [*words])


async def test_who_has_it_is_named_and_what_failed_goes_on(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dark = {site.world.node(name).node.id for name in ("n1", "n2")}

    async def answer(call: str, params: Mapping[str, Any]) -> Any:
        if params["node"] in dark:
            raise Unreachable("cannot reach the BMC: no answer in 2 s")
        return {"where": "", "left": ""}

    site.world.answer_calls(monkeypatch, answer)
    assert await command("power", "password", "@all", "--yes") == 1
    out = capsys.readouterr().out
    assert "n[1-2]  bmc   cannot reach the BMC: no answer in 2 s" in out
    assert "n[0,3]: the new password works" in out
    assert "bmc has the old password until the others of its nodes" in out
    dark.clear()
    assert await command("power", "password", "@all", "--yes", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["nodes"]
    assert sorted((row["node"], row["error"]) for row in rows) == [(f"n{i}", "") for i in range(4)]
    assert await command("power", "password", "n0", "--yes") == 2
    refused = capsys.readouterr().err
    assert "n1, n2, n3 have theirs from the same file, bmc" in refused
