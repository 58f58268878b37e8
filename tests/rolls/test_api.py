"""The routes of rolls, as a client meets them."""

from __future__ import annotations

import getpass
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import served
from tests.support.rollnodes import Site, a_site

ME = getpass.getuser()
"""Who the socket says that a test is; what it says itself stands beside that."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 4) as found:
        yield found


def client(site: Site) -> AbstractAsyncContextManager[Any]:
    return served(site.world.head, local=True)


async def post(api: Any, path: str, body: Any) -> tuple[int, Any]:
    answer = await api.post(path, data=json.dumps(body))
    return answer.status, await answer.json()


async def test_a_roll_is_begun_shown_and_ordered(site: Site) -> None:
    async with client(site) as api:
        status, told = await post(
            api, "/v1/rolls", {"range": "n[0-3]", "image": "two", "batch": "25%", "by": "ann\x1b"}
        )
        assert (status, told["roll"]["state"], told["roll"]["by"]) == (
            200,
            "staging",
            f"{ME} for ann",
        )
        assert "nodes" not in told["roll"]
        await site.step(3)
        shown = (await (await api.get("/v1/rolls/1")).json())["roll"]
        assert [n["name"] for n in shown["nodes"]] == ["n0", "n1", "n2", "n3"]
        assert shown["plan"]["batch"] == "25%"
        assert (await (await api.get("/v1/rolls")).json())["rolls"][0]["id"] == 1
        assert (await post(api, "/v1/rolls/1/pause", {"by": "bob"}))[1]["roll"][
            "reason"
        ] == f"paused by {ME} for bob"
        assert (await post(api, "/v1/rolls/1/pause", {}))[0] == 403
        assert (await post(api, "/v1/rolls/1/resume", {}))[1]["roll"]["state"] == "rolling"
        await site.until_over(1)
        shown = (await (await api.get("/v1/rolls/1?nodes=open")).json())["roll"]
        assert (shown["state"], shown["nodes"]) == ("done", [])
        assert (await post(api, "/v1/rolls/1/abort", {}))[0] == 403


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/rolls", {"range": "n9", "image": "two"}, 400),
        ("/v1/rolls", {"range": "n0", "image": "nope"}, 400),
        ("/v1/rolls", {"range": "n0", "image": "two", "batch": "many"}, 400),
        ("/v1/rolls", {"range": "n0", "image": "two", "on_failure": "shrug"}, 400),
        ("/v1/rolls", {"range": "n0", "image": "two", "stages": ["none-such"]}, 400),
        ("/v1/rolls/7/abort", {}, 404),
        ("/v1/rolls/..%2f7/abort", {}, 404),
        ("/v1/rolls/1e3/pause", {}, 404),
    ],
)
async def test_mistakes_are_answered(site: Site, path: str, body: Any, status: int) -> None:
    async with client(site) as api:
        found, told = await post(api, path, body)
        assert found == status, told
        assert told["error"].startswith("cannot ")
        assert (await api.get("/v1/rolls/1?nodes=some")).status == 400


async def test_a_roll_over_nodes_of_another_is_refused_with_who_and_which(site: Site) -> None:
    async with client(site) as api:
        await post(api, "/v1/rolls", {"range": "n[0-1]", "image": "two", "by": "ann"})
        status, told = await post(
            api, "/v1/rolls", {"range": "n[1-2]", "image": "three", "by": "bob"}
        )
        assert status == 403
        assert told["error"] == f"cannot roll n1: roll 1 to two, by {ME} for ann, has it (staging)"
        assert "layercake roll abort 1" in told["hint"]
