"""The life of a token: made, kept as a digest, bounded by who made it, ended at once with all that
is open; and tokens.json."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from layercake.features.access.doors import create_admin_token
from layercake.features.access.tokens import FILE_NAME, MOST, Tokens, blake2b
from layercake.fleet import events
from layercake.head.head import Head
from layercake.kraken.errors import InputError, OperationFailed
from tests.access.conftest import OWN
from tests.support.api import served, token
from tests.support.disk import on_disk, read_only
from tests.support.world import World


@pytest.fixture
async def api(world: World) -> AsyncIterator[Any]:
    async with served(world.head, local=False) as client:
        yield client


async def made(api: Any, headers: dict[str, str], **asked: Any) -> tuple[int, Any]:
    async with api.post(
        "/v1/tokens", json={"name": "new", "role": "viewer", **asked}, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def status(api: Any, headers: dict[str, str], path: str = "/v1/nodes") -> int:
    async with api.get(path, headers=headers) as answer:
        return int(answer.status)


async def test_a_token_works_at_once_and_over_a_restart_and_only_its_digest_is_kept(
    world: World, api: Any
) -> None:
    admin = await token(world.head, "root", "admin", may_exec=True)
    code, told = await made(api, admin, role="operator", groups=["physics"], seconds=3600.0)
    assert (code, told["name"], told["role"], told["groups"], told["by"]) == (
        200,
        "new",
        "operator",
        ["physics"],
        "root",
    )
    headers = {"Authorization": f"Bearer {told['token']}"}
    assert await status(api, headers) == 200
    await world.restart()
    async with served(world.head, local=False) as again:
        assert await status(again, headers) == 200
        async with again.get("/v1/tokens", headers=admin) as answer:
            listed = await answer.text()
        assert [t["name"] for t in json.loads(listed)["tokens"]] == ["new", "root"] and told[
            "token"
        ] not in listed
        async with again.delete("/v1/tokens/new", headers=admin) as answer:
            assert answer.status == 200
        assert await status(again, headers) == 401
    for file in world.directory.glob("layercake.db*"):
        assert told["token"].encode() not in file.read_bytes()
    await world.restart()
    async with served(world.head, local=False) as again:
        assert await status(again, headers) == 401, "it stays revoked"


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "New"},
        {"name": ""},
        {"name": "a" * 64},
        {"name": "../x"},
        {"name": "root"},
        {"name": "²"},
        {"role": "king"},
        {"groups": []},
        {"groups": ["none"]},
        {"groups": ["physics", "phisics"]},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 1e300},
        {"seconds": "1"},
    ],
    ids=str,
)
async def test_what_is_no_token(world: World, api: Any, asked: dict[str, Any]) -> None:
    code, told = await made(api, await token(world.head, "root", "admin"), **asked)
    assert code == 400 and told["error"].startswith("cannot "), told
    assert [t.name for t in world.head.part(Tokens).all()] == ["root"]


async def test_nobody_gives_what_he_does_not_have(world: World, api: Any) -> None:
    brief = await token(world.head, "brief", "admin", seconds=60.0)
    assert (await made(api, brief, exec=True, seconds=1.0))[0] == 403
    for asked in ({}, {"seconds": 61.0}):
        assert (await made(api, brief, **asked))[0] == 403
    assert (await made(api, brief, role="admin", seconds=60.0))[0] == 200


async def test_there_are_not_more_than_somebody_can_look_through(world: World) -> None:
    kept = await token(world.head, "t0", "viewer")
    first = world.head.part(Tokens).all()[0]
    many = [
        {**msgspec.to_builtins(first), "name": f"t{i}", "digest": f"sha256:{i}"}
        for i in range(MOST)
    ]
    world.head.part(Tokens).load({"access/tokens": json.dumps({"tokens": many}).encode()})
    with pytest.raises(InputError, match="there are 1000"):
        await token(world.head, "more", "viewer")
    assert kept


async def test_a_token_that_cannot_be_kept_is_not_made(world: World) -> None:
    with read_only(world.head), pytest.raises(OperationFailed):
        await token(world.head, "new", "viewer")
    assert world.head.part(Tokens).all() == []


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_what_is_open_with_a_token_ends_with_it(world: World, api: Any, end: str) -> None:
    other = await token(world.head, "other", "viewer")
    headers = await token(world.head, "mine", "viewer", seconds=None if end == "revoked" else 0.5)
    async with (
        api.ws_connect("/v1/events/ws", headers=headers) as mine,
        api.ws_connect("/v1/events/ws", headers=other) as theirs,
    ):
        world.head.store.event(world.node(OWN), events.SYNC_ATTACHED, "before")
        assert (
            "before" in (await mine.receive(timeout=60)).data
            and "before" in (await theirs.receive(timeout=60)).data
        )
        if end == "revoked":
            await world.ops.tokens.revoke("mine")
        over = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING)
        assert (await mine.receive(timeout=60)).type in over
        world.head.store.event(world.node(OWN), events.SYNC_ATTACHED, "after")
        assert "after" in (await theirs.receive(timeout=60)).data


# -- tokens.json, of an older Layercake or of `layercake init`


async def test_the_tokens_of_the_file_go_on_and_can_be_revoked_for_good(world: World) -> None:
    text = create_admin_token(world.directory).read_text().strip()
    path = world.directory / FILE_NAME
    path.write_text(
        json.dumps(
            {**json.loads(path.read_text()), blake2b("look"): "viewer", blake2b("see"): "viewer"}
        )
    )
    for round_ in range(2):
        await world.restart()
        async with served(world.head, local=False) as api:
            assert [
                (t.name, t.role, t.groups, t.exec, t.expires) for t in world.head.part(Tokens).all()
            ] == [
                ("admin", "admin", None, True, None),
                ("viewer", "viewer", None, False, None),
                ("viewer-2", "viewer", None, False, None),
            ]
            assert await status(api, {"Authorization": f"Bearer {text}"}, "/v1/tokens") == 200, (
                round_
            )
            assert await status(api, {"Authorization": "Bearer look"}) == 200
    async with served(world.head, local=False) as api:
        await world.ops.tokens.revoke("viewer")
        assert await status(api, {"Authorization": "Bearer look"}) == 401
    await world.restart()
    async with served(world.head, local=False) as api:
        assert await status(api, {"Authorization": "Bearer look"}) == 401, (
            "its line still stands in the file"
        )
        assert await status(api, {"Authorization": "Bearer see"}) == 200


@pytest.mark.parametrize("text", ["[]", "{", '{"a": "king"}', '{"a": 1}', '"x"', "\udcff"])
async def test_a_file_that_cannot_be_read_is_named(world: World, text: str) -> None:
    (world.directory / FILE_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"cannot read .*tokens\.json"):
        world.head.part(Tokens).adopt(world.directory / FILE_NAME, {})


async def test_the_file_is_in_the_database_after_the_next_flush(world: World) -> None:
    create_admin_token(world.directory)
    await world.restart()
    await world.head.database.flush(world.head.store)
    assert (
        b'"admin"'
        in on_disk(world.directory, "SELECT data FROM documents WHERE key = 'access/tokens'")[0][0]
    )


async def test_the_file_takes_nothing_away_however_the_parts_are_put_together(world: World) -> None:
    """`serve` makes the API before the head has read its database."""
    create_admin_token(world.directory)
    await world.restart()
    ours = await token(world.head, "ours", "viewer")
    await world.ops.tokens.revoke("admin")
    await world.head.database.flush(world.head.store)
    await world.close_head()
    world.head = Head(world.directory, world.settings, world.clock)
    app = world.head.api().application(local=False)
    world.open()
    await world.head.database.flush(world.head.store)
    async with TestClient(TestServer(app)) as api:
        assert await status(api, ours) == 200
    assert [t.name for t in world.head.part(Tokens).all()] == ["ours"]
    assert (
        b"admin"
        not in on_disk(world.directory, "SELECT data FROM documents WHERE key = 'access/tokens'")[
            0
        ][0]
    )
