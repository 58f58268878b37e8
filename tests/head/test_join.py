"""Joining: one-use tokens inside a boot window; every other claim is refused, recorded, and tells
nothing."""

from __future__ import annotations

import base64
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from imageapi.node.container.egress import HeadPorts, parse_head_ports
from imageapi.spec.image import parse_images
from imageapi.store.store import ImageStore
from layercake.base.signatures import by_key
from layercake.features.boots.boot_sets import BootSets
from layercake.fleet.store import WantedImage
from layercake.kraken.planner import Planner
from layercake.kraken.wire import bearer, node_text
from minos.agent.state import Config, SessionFile, parse_join
from minos.build import sets
from tests.support.world import World

BOOT = "7f0c6b0e-0000-4000-8000-000000000001"


def claim(world: World, token: str, name: str = "n0") -> dict[str, str]:
    return {
        "node": world.node(name).node.id,
        "token": token,
        "boot_id": BOOT,
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }


async def test_a_right_token_joins(world: World, client: TestClient[Any, Any]) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    answer = await client.post("/node/v1/join", json=claim(world, token))
    body = await answer.json()
    assert answer.status == 200
    assert len(base64.b64decode(body["key"])) == 32
    assert body["desired"]["revision"] == world.node("n0").cfg_revision
    assert world.node("n0").value("run") == "INIT"
    assert "node.joined" in world.kinds("n0")


async def test_a_node_gets_the_table_that_its_head_plans_by(
    world: World, client: TestClient[Any, Any]
) -> None:
    planner = world.node("n0").planner
    token = world.head.joining.open(world.node("n0"), 60)
    answer = await (await client.post("/node/v1/join", json=claim(world, token))).json()
    session = parse_join({**answer, "sync": "127.0.0.1:1"})
    assert session.mutations == planner.mutations and session.traits == planner.traits
    assert {m.name: m.doc for m in session.mutations} == {m.name: m.doc for m in planner.mutations}
    assert (
        Planner(session.mutations, session.layout.variables, session.traits).graph.fingerprint()
        == planner.graph.fingerprint()
    )


async def test_a_node_gets_the_key_by_which_its_images_are_signed_and_keeps_it(
    world: World, client: TestClient[Any, Any], tmp_path: Path
) -> None:
    """The way from the head to the node, by TLS: the key with the join, for the session, the
    signatures with the documents."""
    (tmp_path / "app.squashfs").write_bytes(b"hsqs" + bytes(5000))
    image = world.head.part(ImageStore).add(tmp_path / "app.squashfs", "app", {})
    world.node("n0").wanted = (WantedImage("app", image.digest, image.size, {}),)
    token = world.head.joining.open(world.node("n0"), 60)
    answer = await (await client.post("/node/v1/join", json=claim(world, token))).json()
    session = parse_join({**answer, "sync": "127.0.0.1:1"})
    spec = parse_images(answer["desired"]["images"])[0]
    assert by_key(session.image_key, spec.manifest, spec.signature)
    config = Config(
        "n0", "n0", "", "http://h", "h:1", token, tmp_path / "ca.pem", tmp_path, BOOT, "1"
    )
    SessionFile(tmp_path).save(config, session)
    found = SessionFile(tmp_path).load(config)
    assert found is not None and found.image_key == session.image_key
    assert parse_head_ports(found.head_ports) == HeadPorts(("127.0.0.1",), (8081,))
    assert parse_head_ports({}) == HeadPorts()
    assert (
        parse_join(
            {key: value for key, value in answer.items() if key != "image_key"} | {"sync": "h:1"}
        ).image_key
        == b""
    )


async def test_a_node_is_told_of_the_modules_of_the_kernel_that_it_has_booted(
    world: World, client: TestClient[Any, Any]
) -> None:
    """With the image that asks for them, and of the set that it has booted, not of the one that it
    boots next."""
    boots = world.head.part(BootSets)
    for name in ("runs", "next"):
        (boots.directory / name).mkdir(parents=True)
        for file in (*sets.FILES, sets.MODULES):
            (boots.directory / name / file).write_text(f"{file} {name}")
        sets.sign(boots.directory / name, name, world.head.part(ImageStore).signer.sign)
    boots.default = "next"
    digest = f"blake2b:{'a' * 64}"
    world.node("n0").wanted = (
        WantedImage("app", digest, 1, {"kernel_modules": True}),
        WantedImage("web", digest, 1, {}),
    )
    token = world.head.joining.open(world.node("n0"), 60)
    answer = await (
        await client.post("/node/v1/join", json={**claim(world, token), "boot": "runs"})
    ).json()
    app, web = parse_images(answer["desired"]["images"])
    assert app.modules is not None and web.modules is None
    assert (
        app.modules.digest
        == f"blake2b:{blake2b(b'modules.squashfs runs', digest_size=32).hexdigest()}"
    )
    assert "/images/boot/runs?node=" in app.modules.url
    assert by_key(
        base64.b64decode(answer["image_key"]), app.modules.manifest, app.modules.signature
    )


async def test_a_join_whose_answer_was_lost_is_answered_again(
    world: World, client: TestClient[Any, Any]
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    first = await (await client.post("/node/v1/join", json=claim(world, token))).json()
    again = await (await client.post("/node/v1/join", json=claim(world, token))).json()
    assert (again["session"], again["key"]) == (first["session"], first["key"])
    world.send(world.hello("n0"))
    assert (await client.post("/node/v1/join", json=claim(world, token))).status == 403, (
        "it was heard: nobody needs it again"
    )


async def test_a_wrong_token_is_refused(world: World, client: TestClient[Any, Any]) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    wrong = await client.post("/node/v1/join", json=claim(world, "x" * len(token)))
    assert (wrong.status, "wrong" in (await wrong.json())["error"]) == (403, True)
    right = await client.post("/node/v1/join", json=claim(world, token))
    assert right.status == 200, "a wrong claim must not use the window up"


async def test_a_token_of_another_node_is_refused(
    world: World, client: TestClient[Any, Any]
) -> None:
    world.head.joining.open(world.node("n0"), 60)
    other = world.head.joining.open(world.node("n1"), 60)
    answer = await client.post("/node/v1/join", json=claim(world, other, "n0"))
    assert answer.status == 403


async def test_a_claim_outside_the_window_is_refused(
    world: World, client: TestClient[Any, Any]
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    world.clock.now += 100
    late = await client.post("/node/v1/join", json=claim(world, token))
    assert (late.status, "no boot window" in (await late.json())["error"]) == (403, True)
    token = world.head.joining.open(world.node("n0"), 60)
    world.head.joining.close(world.node("n0"))
    closed = await client.post("/node/v1/join", json=claim(world, token))
    assert closed.status == 403


HOSTILE = b'{"node": "../../etc", "token": "", "boot_id": "", "mac": "", "version": ""}'


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"node": 5}', HOSTILE])
async def test_a_claim_that_makes_no_sense_is_refused(
    client: TestClient[Any, Any], body: bytes
) -> None:
    answer = await client.post("/node/v1/join", data=body)
    assert answer.status in (400, 403)


async def test_defect_6_nothing_is_given_without_the_session_key(
    world: World, client: TestClient[Any, Any]
) -> None:
    session = world.attach("n0")
    node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
    good = bearer(session.key, node, session.number)
    assert (await client.get("/node/v1/desired", headers={"Authorization": good})).status == 200
    forged = bearer(b"x" * 32, node, session.number)
    for header in ("", "Bearer", forged, good + "0", f"Bearer {node_text(node)}.{session.number}."):
        answer = await client.get("/node/v1/desired", headers={"Authorization": header})
        assert answer.status == 401, header


async def test_a_nodes_events_enter_its_history(world: World, client: TestClient[Any, Any]) -> None:
    session = world.attach("n0")
    node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
    headers = {"Authorization": bearer(session.key, node, session.number)}
    events = [{"kind": "image.rolled", "severity": "info", "text": "rolled", "data": {"gap_ms": 3}}]
    assert (await client.post("/node/v1/events", json=events, headers=headers)).status == 200
    assert "image.rolled" in world.kinds("n0")
    bad = await client.post("/node/v1/events", json=["x"], headers=headers)
    assert bad.status == 400


async def test_secrets_are_in_no_event(world: World, client: TestClient[Any, Any]) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    key = (await (await client.post("/node/v1/join", json=claim(world, token))).json())["key"]
    await client.post("/node/v1/join", json=claim(world, token))
    told = repr([(e.text, e.data) for e in world.head.store.events]) + repr(world.node("n0"))
    assert token not in told
    assert key not in told
    assert repr(base64.b64decode(key)) not in told
