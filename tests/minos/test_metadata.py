"""The metadata service of a node: tokens, the tree, NoCloud, and who does not get in. With a socket
of its own on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from layercake.features.files.given import facts
from layercake.features.files.node_files import NodeFiles
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import NotFound, OperationFailed
from layercake.kraken.events import EventKind, Severity
from minos.agent.files.manager import FileManager
from minos.agent.files.manifest import METADATA, Manifest, parse
from minos.agent.metadata import asker, service
from minos.agent.metadata.answers import EMPTY, MOST_TOKENS, TOKEN, TTL, Answered, Answers
from minos.agent.metadata.asker import container_of
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


async def test_an_image_can_have_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        site = """
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, files: {"metadata@app:/user-data": {content: a},
       "metadata@app:2:/user-data": {content: b}}}
"""
        await world.ops.inventory.apply(site, "x", None, True)
        found = await world.head.part(NodeFiles).manifest(world.node("n0"))
        manifest = parse({"mark": "m", "files": world.head.part(NodeFiles).for_node(found)})
        await world.head.part(NodeFiles).close()
    common, own = manifest.metadata()
    assert list(common) == ["/facts.json"]
    assert own == {"app": {"/user-data": b"a"}, "app:2": {"/user-data": b"b"}}
    assert "/user-data" not in manifest.chosen("app"), "it is no file of the image"


OWN = {"db": {"/user-data": b"of db"}, "db:2": {"/user-data": b"of db:2"}}


def test_each_image_is_told_what_is_for_it() -> None:
    asks: str | None = None
    listener = listen("127.0.0.1", 0)
    found = Metadata(lambda: listener, asker=lambda client: asks)
    found.update(FILES, OWN)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    heard = {}
    for image in ("web", "db", "db:1", "db:2"):
        asks = image
        heard[image] = ask(f"{url}/nocloud/user-data")[1]
    assert heard == {
        "web": FILES["/user-data"],
        "db": b"of db",
        "db:1": b"of db",
        "db:2": b"of db:2",
    }
    asks = "web"
    token = ask(f"{url}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")[1]
    mine = {"X_aws_ec2_metadata_token": token.decode()}
    assert ask(f"{url}/latest/user-data", **mine)[0] == 200
    asks = "db"
    assert ask(f"{url}/latest/user-data", **mine)[0] == 401, "the token of another image"
    found.update(FILES)
    assert ask(f"{url}/nocloud/user-data")[1] == FILES["/user-data"]
    asks = None
    assert ask(f"{url}/nocloud/user-data")[0] == 403, "it is of no image"
    found.close()


def test_no_image_takes_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were shared by all: sixteen that said nothing were answered, and nobody else."""
    monkeypatch.setattr(service, "PATIENCE_S", 300.0)
    asks = "web"
    listener = listen("127.0.0.1", 0)
    found = Metadata(lambda: listener, asker=lambda client: asks)
    found.update(FILES, OWN)
    place = listener.getsockname()
    with contextlib.ExitStack() as stack:
        for _ in range(3 * service.AT_ONCE):
            stack.enter_context(socket.create_connection(place))
        last = stack.enter_context(socket.create_connection(place))
        last.sendall(b"GET /nocloud/user-data HTTP/1.1\r\n\r\n")
        assert last.recv(100).startswith(b"HTTP/1.1 200"), "a newcomer has a place of its image's"
        asks = "db"
        assert ask(f"http://127.0.0.1:{place[1]}/nocloud/user-data") == (200, b"of db")
    found.close()


ASKS = """
import socket, sys
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def asked_by(tmp_path: Path) -> Iterator[Callable[[str, str], socket.socket]]:
    """Accepts a connection of a process in a group below `tmp_path`; its name has to exist."""
    children = []
    listener = socket.create_server(("127.0.0.1", 0))

    def connect(group: str, address: str) -> socket.socket:
        child = subprocess.Popen(
            [sys.executable, "-c", ASKS, address, str(listener.getsockname()[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        children.append(child)
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        with (tmp_path / group / "cgroup.procs").open("a") as procs:
            procs.write(f"{child.pid}\n")
        client, _ = listener.accept()
        return client

    yield connect
    for child in children:
        child.communicate()
    listener.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"], ids=["ipv4", "mapped"])
def test_the_kernel_says_which_container_asks(
    tmp_path: Path, asked_by: Callable[[str, str], socket.socket], address: str
) -> None:
    one = asked_by("a", address)
    two = asked_by("b/system.slice/x.service", address)
    (tmp_path / "empty").mkdir()
    assert [container_of(client, tmp_path) for client in (one, two)] == ["a", "b"]
    (tmp_path / "a/cgroup.procs").write_text("")
    assert container_of(one, tmp_path) == "", "of no container"
    for client in (one, two):
        client.close()


def test_a_container_of_many_descriptors_costs_little_and_is_nobody(
    tmp_path: Path, asked_by: Callable[[str, str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked_by("a", "127.0.0.1")
    assert container_of(one, tmp_path) == "a"
    monkeypatch.setattr(asker, "MOST_DESCRIPTORS", 1)
    assert container_of(one, tmp_path) == ""
    one.close()


def test_a_container_of_many_groups_costs_little_and_is_nobody(
    tmp_path: Path, asked_by: Callable[[str, str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked_by("a/below", "127.0.0.1")
    assert container_of(one, tmp_path) == "a"
    monkeypatch.setattr(asker, "MOST_GROUPS", 1)
    assert container_of(one, tmp_path) == ""
    one.close()


def test_who_was_there_first_is_not_taken_for_the_node() -> None:
    first = socket.create_server(("", 0))
    found = Metadata(lambda: listen("127.0.0.1", first.getsockname()[1]))
    with pytest.raises(OperationFailed, match="cannot serve metadata"):
        found.update(FILES)
    first.close()


def test_no_image_starts_where_another_one_answers_for_the_node(tmp_path: Path) -> None:
    def taken(files: object, of_images: object) -> None:
        raise OperationFailed("cannot serve metadata: Address already in use")

    events: list[str] = []

    def event(kind: EventKind, text: str, severity: Severity | None = None, **data: object) -> None:
        events.append(text)

    own = tmp_path / "root"
    own.mkdir()
    manager = FileManager(
        SimpleNamespace(run=tmp_path),  # type: ignore[arg-type]
        event,
        lambda: (),
        own,
        taken,
        lambda config, session: Manifest("m", ()),
    )
    manager.set_desired({"files": {"mark": "m"}}, SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(OperationFailed, match="cannot serve metadata"):
        manager.ready()
    manager.work()
    assert any("cannot serve metadata" in text for text in events), "and it is told"


@pytest.mark.parametrize(
    "what",
    [
        "'metadata:/etc/x': {content: a}",
        "'metadata,app:/user-data': {content: a}",
        "'metadata:/user-data': {tree: a}",
        "'metadata:/user-data': {content: a, on_change: restart}",
        "'metadata@app:/etc/x': {content: a}",
        "'metadata@:/user-data': {content: a}",
        "'metadata@app,metadata:/user-data': {content: a}",
        "'metadata@app:/user-data': {tree: a}",
    ],
)
def test_nothing_else_can_be_said_by_it(what: str) -> None:
    with pytest.raises(InventoryErrors):
        load(f'nodes: {{n1: {{mac: "52:54:00:00:00:11", ip: 10.1.0.11, files: {{{what}}}}}}}')
