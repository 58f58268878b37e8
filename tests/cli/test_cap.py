"""Power caps by API and command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from layercake.kraken.errors import Unreachable
from tests.support.api import served, token
from tests.support.world import INVENTORY, World


@pytest.fixture
async def room(tmp_path: Any) -> Any:
    """A head whose n0 can be capped, and whose n1 has a BMC that is silent."""
    world = World(tmp_path)
    world.open()
    await world.ops.inventory.apply(INVENTORY, "rack.yaml", None, False)
    n1, caps = world.node("n1").node.id, {"watts": None}

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        if params["node"] == n1:
            raise Unreachable("cannot reach the BMC at 10.2.0.1:623")
        if method == "power.set-cap":
            caps["watts"] = params["watts"]
        return dict(caps)

    world.head.modules.host.call = ask  # type: ignore[method-assign]
    yield world
    await world.close_head()
    world.client.close()


async def test_by_the_api(room: World) -> None:
    async with served(room.head, local=False) as api:
        operator, viewer = (
            await token(room.head, "op", "operator"),
            await token(room.head, "eve", "viewer"),
        )
        body = {"range": "n0,n1", "watts": 350}
        async with api.post("/v1/power/cap", json=body, headers=viewer) as answer:
            assert answer.status == 403
        async with api.post("/v1/power/cap", json=body, headers=operator) as answer:
            n0, n1 = (await answer.json())["nodes"]
            assert n0 == {"node": "n0", "watts": 350, "error": ""} and "10.2.0.1" in n1["error"]
        async with api.get("/v1/power/cap?range=n0,n1", headers=viewer) as answer:
            n0, n1 = (await answer.json())["nodes"]
            assert n0["watts"] == 350 and n1["error"] == "cannot be asked"
        for wrong in (
            {"range": "n0", "watts": 0},
            {"range": "n0"},
            {"range": "", "watts": 5},
            {"range": "n0", "watts": 70000},
        ):
            async with api.post("/v1/power/cap", json=wrong, headers=operator) as answer:
                assert answer.status == 400
        told = [(e.node, e.text) for e in room.head.store.events if e.kind == "power.capped"]
        assert told == [("n0", "the BMC caps its draw at 350 W, by op")]
        await room.ops.care.freeze("n0", "a test", by="op")
        async with api.post(
            "/v1/power/cap", json={"range": "n0", "watts": None}, headers=operator
        ) as answer:
            assert answer.status == 403 and "frozen" in await answer.text()


def test_by_the_command(run: Callable[..., Any], head: Any) -> None:
    rows = [
        {"node": "n0", "watts": 350, "error": ""},
        {"node": "n1", "watts": None, "error": ""},
        {"node": "n2", "watts": None, "error": "it has no power limit"},
    ]
    head.answers["GET /v1/power/cap"] = head.answers["POST /v1/power/cap"] = (200, {"nodes": rows})
    shown = run("power", "cap", "n[0-2]")
    assert [line.split()[:2] for line in shown.out.splitlines()[1:]] == [
        ["n0", "350"],
        ["n1", "none"],
        ["n2", "-"],
    ]
    assert shown.code == 1
    assert run("power", "cap", "n0", "350", "--yes").code == 1
    assert run("power", "cap", "n0", "none", "--yes").code == 1
    for wrong in ("0", "many", "-5", "70000", "3.5"):
        assert run("power", "cap", "--yes", "n0", "--", wrong).code == 2


def test_a_soft_power_off_by_the_command(run: Callable[..., Any], head: Any) -> None:
    head.answers["POST /v1/power"] = (200, {"nodes": [{"node": "n0", "accepted": True, "why": ""}]})
    head.answers["GET /v1/nodes"] = (200, {"nodes": []})
    assert run("power", "off", "n0", "--soft", "--yes").code == 0
    assert head.asked("POST /v1/power") == [
        {"range": "n0", "action": "off", "force": False, "soft": True}
    ]
