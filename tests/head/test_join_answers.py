"""What a node that joins is answered, and what its head knows of it from then on."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from cryptography import x509

from layercake.agents.https.join import JoinApi
from layercake.agents.https.routes import OpenRoute
from layercake.agents.joining import Claim, Window
from layercake.agents.pki import create
from layercake.fleet.store import Record, Session, Trust, WantedImage
from layercake.inventory.schema import Node
from layercake.kraken.facts import NodeState
from layercake.kraken.wire import bearer
from tests.support.world import World, client_of

Client = TestClient[Any, Any]


@pytest.fixture(autouse=True)
def authority(world: World) -> None:
    """The site has one."""
    create(world.directory / "pki", "127.0.0.1")
    world.head.authority.reread("127.0.0.1")


BOOT = "7f0c6b0e-0000-4000-8000-000000000001"
MAX_CLAIM = 16384


def claim(world: World, **more: Any) -> dict[str, Any]:
    """The claim of n0, in a window that is opened for it."""
    return {
        "node": world.node("n0").node.id,
        "token": world.head.joining.open(world.node("n0"), 60),
        "boot_id": BOOT,
        "mac": "52:54:00:00:00:10",
        "version": "7",
        **more,
    }


async def join(world: World, client: Client, **more: Any) -> dict[str, Any]:
    """The answer to a claim that is good."""
    response = await client.post("/node/v1/join", json=claim(world, **more))
    assert response.status == 200, await response.text()
    answer: dict[str, Any] = await response.json()
    return answer


def as_json(value: Any) -> Any:
    """What becomes of a value on its way."""
    return json.loads(json.dumps(value))


def name_in(certificate: str) -> str:
    """The name that a certificate is for."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    (name,) = found.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.DNSName)
    return name


async def test_a_node_is_told_of_its_session_and_how_to_speak(world: World, client: Client) -> None:
    answer = await join(world, client)
    record = world.node("n0")
    timers = world.head.sync.timers
    session = record.session
    assert session is not None and session.boot_id == BOOT
    assert (answer["session"], answer["epoch"]) == (session.number, world.head.store.epoch)
    assert (answer["hello_s"], answer["dead_s"]) == (timers.hello_s, timers.dead_s)
    assert answer["certificate"] == 1
    assert base64.b64decode(answer["key"]) == session.key
    assert answer["sync"] == f"127.0.0.1:{timers.port}"
    assert answer["layout"] == as_json(record.planner.layout.to_wire())
    assert answer["desired"]["revision"] == record.cfg_revision
    assert answer["mutations"] == as_json([m.to_wire() for m in record.planner.mutations])
    assert answer["traits"] == as_json(record.planner.traits)
    assert set(answer["tls"]) == {"cert", "key"}
    name = name_in(answer["tls"]["cert"])
    assert record.node.id in name and str(session.number) in name


@pytest.mark.parametrize(
    ("said", "mutual"), [({}, False), ({"mutual": True}, True), ({"mutual": "yes"}, False)]
)
async def test_an_agent_that_shows_its_certificate_says_so(
    world: World, client: Client, said: Mapping[str, Any], mutual: bool
) -> None:
    answer = await join(world, client, **said)
    session = world.node("n0").session
    assert session is not None and (answer["mutual"], session.mutual) == (mutual, mutual)
    assert not session.quoted, "its head asks for no quote"


async def test_a_join_is_told_with_the_boot_the_card_and_the_version(
    world: World, client: Client
) -> None:
    await join(world, client)
    (event,) = [e for e in world.events_of("n0") if e.kind == "node.joined"]
    assert event.text == "joined from 10.1.0.10"
    assert event.data == {"boot_id": BOOT, "mac": "52:54:00:00:00:10", "version": "7"}


async def test_the_boot_set_and_the_agent_of_a_boot_are_known_if_it_says_them(
    world: World, client: Client
) -> None:
    await join(world, client, boot="stable", agent="1-abc")
    assert (world.node("n0").boots.runs, world.node("n0").boots.agent_runs) == ("stable", "1-abc")
    await join(world, client, boot="../etc", agent=5)
    assert (world.node("n0").boots.runs, world.node("n0").boots.agent_runs) == ("", "")


async def test_what_was_heard_of_an_earlier_boot_counts_no_more(
    world: World, client: Client
) -> None:
    await join(world, client)
    world.send(world.hello("n0"))
    image = WantedImage("app", f"blake2b:{'a' * 64}", 1, {})
    record = world.node("n0")
    heard: dict[str, Any] = {
        "trust": Trust(certificate=5, at=1.0),
        "acked": 9,
        "running": (image,),
        "staged": frozenset({image.digest}),
        "stage_error": "no space",
        "unhealthy": "no route",
        "containers": ({"name": "app"},),
        "api_port": 7000,
        "interfaces": ("eth0",),
    }
    for name, value in heard.items():
        setattr(record, name, value)
    assert record.last_seen is not None and record.address is not None
    world.clock.now += 40.0
    await join(world, client)
    record = world.node("n0")
    fresh = Record(0, Node("id", "x", (), ""), record.planner, NodeState.fresh(record.machine.goal))
    after = heard.keys() | {"last_seen", "address"}
    assert {name: getattr(record, name) for name in after} == {
        **{name: getattr(fresh, name) for name in after},
        "trust": Trust(at=world.clock()),
    }


async def test_a_node_that_joins_is_alive_and_starts(world: World, client: Client) -> None:
    await join(world, client)
    record = world.node("n0")
    assert (record.value("power"), record.value("run")) == ("ON", "INIT")
    (change,) = [e.text for e in world.events_of("n0") if e.kind == "state.changed"]
    assert change.endswith("run UNKNOWN -> INIT (the node has joined)")


async def test_a_joined_node_fetches_its_authorities_and_next_certificate(
    world: World, client: Client
) -> None:
    answer = await join(world, client)
    node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
    key = base64.b64decode(answer["key"])
    headers = {"Authorization": bearer(key, node, answer["session"])}
    response = await client.get("/node/v1/trust", headers=headers)
    trust = await response.json()
    assert response.headers["Cache-Control"] == "no-store"
    assert set(trust) == {"authorities", "certificate", "tls"}
    assert trust["authorities"] == world.head.authority.trusted.read_text()
    assert trust["certificate"] == world.node("n0").trust.certificate
    assert name_in(trust["tls"]["cert"]) == name_in(answer["tls"]["cert"])
    assert trust["tls"]["cert"] != answer["tls"]["cert"]


async def test_a_larger_claim_than_the_limit_is_refused(world: World, client: Client) -> None:
    good = claim(world)
    empty = len(json.dumps({**good, "more": ""}))
    for more, status in ((MAX_CLAIM - empty + 1, 400), (MAX_CLAIM - empty, 200)):
        data = json.dumps({**good, "more": "x" * more})
        assert (await client.post("/node/v1/join", data=data)).status == status


def test_the_token_of_a_window_is_shown_nowhere() -> None:
    assert "secret-token" not in repr(Window("secret-token", 0.0))


class Quotes:
    """Asks every node for something first, until it is shown."""

    def __init__(self) -> None:
        self.shown = False
        self.asked: list[tuple[str, str, Any]] = []

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """A challenge, until it is met."""
        self.asked.append((record.name, claim.boot_id, body["version"]))
        return None if self.shown else web.json_response({"challenge": "prove it"})

    def passed(self, record: Record, claim: Claim) -> bool:
        """Whether it was."""
        return self.shown


async def test_a_node_that_has_to_show_something_first_is_asked_for_it(world: World) -> None:
    """And its token is good for the join that follows."""
    head = world.head
    quotes = Quotes()
    api = JoinApi(
        head.store,
        head.desire,
        head.joining,
        head.sync,
        head.table,
        head.authority,
        head.nodes.document,
        quotes,
        lambda node: f"10.1.0.1 for {node}",
        (lambda record: {"greeting": record.name},),
    )
    (route,) = [route for route in api.routes() if isinstance(route, OpenRoute)]
    body = claim(world)
    async with client_of([web.route(route.method, route.path, route.handler)]) as client:
        assert await (await client.post(route.path, json=body)).json() == {"challenge": "prove it"}
        assert world.node("n0").session is None and "node.joined" not in world.kinds("n0")
        quotes.shown = True
        answer = await (await client.post(route.path, json=body)).json()
    session: Session | None = world.node("n0").session
    assert session is not None and session.quoted and answer["greeting"] == "n0"
    assert answer["sync"] == f"10.1.0.1 for {body['node']}:{head.sync.timers.port}"
    assert quotes.asked == [("n0", BOOT, "7")] * 2
