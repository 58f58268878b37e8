"""The metadata service of a node: tokens, the tree, NoCloud, and who does not get in. With a socket
of its own on loopback."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.features.files.given import facts
from layercake.features.files.node_files import NodeFiles
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import NotFound
from minos.agent.files.manifest import METADATA, parse
from minos.agent.metadata import service
from minos.agent.metadata.answers import EMPTY, MOST_TOKENS, TOKEN, TTL, Answered, Answers
from minos.agent.metadata.service import Metadata, listen
from tests.support.clock import FakeClock
from tests.support.inventory import load
from tests.support.world import opened

KEYS = ["ssh-ed25519 AAAA me@here", "ssh-ed25519 BBBB you"]
NODE = load('nodes: {n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11}}').nodes["n1"]
FILES = {
    "/facts.json": facts(NODE, {"name": "rack7", "domain": "lab.test"}, KEYS).data,
    "/user-data": b"#cloud-config\nx: 1\n",
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def answered(clock: FakeClock) -> Answers:
    found = Answers(clock)
    found.update(FILES)
    return found


def token(found: Answers, seconds: str = "60") -> dict[str, str]:
    return {TOKEN: found.answer("PUT", "/latest/api/token", {TTL: seconds}).body.decode()}


def test_without_a_token_nothing_is_said(answered: Answers, clock: FakeClock) -> None:
    for path in (
        "/",
        "/latest/meta-data/",
        "/latest/user-data",
        "/2021-03-23/meta-data/instance-id",
    ):
        assert answered.answer("GET", path, {}).status == 401
        assert answered.answer("GET", path, {TOKEN: "wrong"}).status == 401
    mine = token(answered)
    assert answered.answer("GET", "/latest/meta-data/local-hostname", mine).body == b"n1"
    clock.now += 60.0
    assert answered.answer("GET", "/latest/meta-data/local-hostname", mine).status == 401, (
        "it was good for a minute"
    )


@pytest.mark.parametrize("seconds", ["", "0", "21601", "x", "-1"])
def test_a_token_is_for_a_while(answered: Answers, seconds: str) -> None:
    assert answered.answer("PUT", "/latest/api/token", {TTL: seconds}).status == 400


def test_tokens_are_bounded_and_proxies_get_none(answered: Answers) -> None:
    first = token(answered)
    for _ in range(MOST_TOKENS):
        token(answered)
    assert answered.answer("GET", "/", first).status == 401
    assert (
        answered.answer(
            "PUT", "/latest/api/token", {TTL: "60", "x-forwarded-for": "10.0.0.1"}
        ).status
        == 403
    )
    assert answered.answer("POST", "/latest/api/token", {TTL: "60"}).status == 405


def test_the_tree_is_as_ec2_has_it(answered: Answers) -> None:
    mine = token(answered)

    def get(path: str) -> str:
        found = answered.answer("GET", path, mine)
        assert found.status == 200, path
        return found.body.decode()

    assert "latest" in get("/").split() and "2021-03-23" in get("/").split()
    assert get("/latest/").split() == ["dynamic", "meta-data", "user-data"]
    assert json.loads(get("/latest/dynamic/instance-identity/document"))["privateIp"] == "10.1.0.11"
    assert get("/latest/meta-data/").split("\n") == [
        "hostname",
        "instance-id",
        "local-hostname",
        "local-ipv4",
        "mac",
        "placement/",
        "public-keys/",
    ]
    assert (
        get("/latest/meta-data/hostname") == "n1.lab.test"
        and get("/2016-09-02/meta-data/local-ipv4") == "10.1.0.11"
    )
    assert get("/latest/meta-data/placement/availability-zone") == "rack7"
    assert get("/latest/meta-data/public-keys/") == "0=me@here\n1=you"
    assert get("/latest/meta-data/public-keys/0/openssh-key") == KEYS[0]
    assert get("/latest/user-data") == "#cloud-config\nx: 1\n"
    for path in (
        "/latest/meta-data/no",
        "/latest/meta-data/hostname/x",
        "/1999-01-01/meta-data",
        "/latest/dynamic/x",
    ):
        assert answered.answer("GET", path, mine).status == 404


def test_nocloud_needs_no_token(answered: Answers) -> None:
    said = json.loads(answered.answer("GET", "/nocloud/meta-data", {}).body)
    assert said == {"instance-id": NODE.id, "local-hostname": "n1", "public-keys": KEYS}
    assert answered.answer("GET", "/nocloud/user-data", {}).body == FILES["/user-data"]
    assert answered.answer("GET", "/nocloud/vendor-data", {}) == Answered(200)
    assert answered.answer("GET", "/nocloud/network-config", {}).status == 404
    assert answered.answer("GET", "/nocloud/../facts.json", {}).status == 404
    answered.update({"/facts.json": FILES["/facts.json"]})
    assert answered.answer("GET", "/nocloud/user-data", {}).body == EMPTY


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(service, "PATIENCE_S", 0.3)
    listener = listen("127.0.0.1", 0)
    found = Metadata(lambda: listener)
    found.update(FILES)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    found.close()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_it_is_served_over_http(served: str) -> None:
    status, mine = ask(
        f"{served}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60"
    )
    assert status == 200
    assert ask(f"{served}/latest/meta-data/mac", X_aws_ec2_metadata_token=mine.decode()) == (
        200,
        b"52:54:00:00:00:11",
    )
    assert ask(f"{served}/latest/meta-data/mac")[0] == 401 and ask(
        f"{served}/nocloud/vendor-data"
    ) == (200, b"")


def test_garbage_and_those_who_say_nothing_hold_nobody_up(served: str) -> None:
    host, port = served.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(8)]
    for garbage in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff" * 100 + b"\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\n\r\n",
        b"x" * 20000,
    ):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(garbage)
            assert client.recv(100).startswith(b"HTTP/1.1 4")
    assert ask(f"{served}/nocloud/meta-data")[0] == 200
    for client in idle:
        client.settimeout(20)
        assert client.recv(100).startswith((b"HTTP/1.1 4", b"")), "they were given up"
        client.close()


async def test_a_node_has_it_where_the_inventory_says_something_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        site = """
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, files: {"metadata:/user-data": {content: "on {{ node.name }}", template: true}}}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}
"""
        await world.ops.inventory.apply(site, "x", None, False)
        wire = {}
        for name in ("n0", "n1"):
            manifest = await world.head.part(NodeFiles).manifest(world.node(name))
            wire[name] = parse(
                {"mark": "m", "files": world.head.part(NodeFiles).for_node(manifest)}
            )
        for path in ("metadata:/user-data", "/user-data"):
            (shown,) = await world.ops.files.content("n0", path)
            assert (shown["for"], shown["text"]) == (["metadata"], "on n0")
        for path in ("minos:/user-data", "metadata:/vendor-data", "metadata:user-data"):
            with pytest.raises(NotFound):
                await world.ops.files.content("n0", path)
        await world.head.part(NodeFiles).close()
    said = {path: entry.data for path, entry in wire["n0"].chosen(METADATA).items()}
    assert (
        said["/user-data"] == b"on n0" and json.loads(said["/facts.json"])["local-hostname"] == "n0"
    )
    assert wire["n1"].chosen(METADATA) == {} and "/user-data" not in wire["n0"].chosen("app")


@pytest.mark.parametrize(
    "what",
    [
        "'metadata:/etc/x': {content: a}",
        "'metadata,app:/user-data': {content: a}",
        "'metadata:/user-data': {tree: a}",
        "'metadata:/user-data': {content: a, on_change: restart}",
    ],
)
def test_nothing_else_can_be_said_by_it(what: str) -> None:
    with pytest.raises(InventoryErrors):
        load(f'nodes: {{n1: {{mac: "52:54:00:00:00:11", ip: 10.1.0.11, files: {{{what}}}}}}}')
