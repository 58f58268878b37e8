"""Every route of the table with every role, scope and right, and with tokens that hold no more,
over a head's real API."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from docs.generator.interfaces import routes
from layercake.api.route import SMALL_BODY, Operation, Reach
from layercake.features.guard.guard import Guard
from layercake.fleet import events
from layercake.moduleapi.module import Role
from tests.access.conftest import OTHER, OTHER_ROLL, OWN, OWN_ROLL, RACK
from tests.support.api import served, token
from tests.support.disk import on_disk
from tests.support.world import World

ROUTES = routes()
NAMES = {
    "nodes": OWN,
    "images": "none",
    "boot": "none",
    "profiles": "none",
    "tokens": "nobody",
    "calls": "boot.steps",
}
BODIES: dict[str, dict[str, Any]] = {
    "CaptureRequest": {"seconds": 1},
    "RevertAsk": {"revision": "HEAD"},
    "RevertRequest": {"revision": "HEAD"},
    "EntryRequest": {"set": {"console": "ttyS1"}},
    "ApplyRequest": {"yaml": RACK},
    "InventoryText": {"yaml": RACK},
    "PromoteRequest": {"head": "two"},
    "InviteRequest": {"head": "two"},
    "HeadRequest": {"head": "two"},
    "RangeRequest": {},
    "StateRequest": {"state": "up"},
    "ExecRequest": {"command": ["true"]},
    "RangeExec": {"command": ["true"]},
    "RangeCopy": {"path": "/tmp/x", "content": {"base64": "eA=="}},
    "PowerRequest": {"action": "on"},
    "SetupRequest": {},
    "PasswordChange": {"range": "n0"},
    "RenameRequest": {"range": "n0", "to": "x0"},
    "EntriesRequest": {"range": "n0", "set": {"console": "ttyS0"}},
    "CapRequest": {"watts": 300},
    "ImageRequest": {"path": "/none", "name": "x"},
    "RollRequest": {"image": "three"},
    "RollStart": {"image": "three"},
    "RollOrder": {},
    "FreezeRequest": {"reason": "a test"},
    "ReleaseRequest": {},
    "ReleaseChange": {"what": "retry"},
    "ThawRequest": {},
    "OutageRequest": {"domain": "none"},
    "MaintenanceRequest": {"reason": "a test"},
    "NodesRequest": {},
    "CallRequest": {},
    "BootDefault": {"name": "none"},
    "BootRoll": {"image": "none"},
    "TokenRequest": {"name": "x", "role": "viewer"},
    "AuthorityRequest": {},
    "LogLevelRequest": {"name": "layercake.api", "level": "default"},
    "KeysRequest": {},
    "DiffRequest": {},
    "AdoptRequest": {"name": "x[0-9]", "ip": "10.99.0.200"},
    "ScanRequest": {"network": "127.0.0.0/30"},
    "TicketAsked": {},
    "PersonRequest": {"person": "local:somebody"},
    "WipeRequest": {"disk": "S1", "mark": "m1"},
}


@dataclass(frozen=True)
class Who:
    """A caller: a role, bound to the group of OWN or not, with the right exec or not."""

    role: Role
    bound: bool
    exec: bool

    @property
    def name(self) -> str:
        return "-".join(
            [
                self.role.name.lower(),
                *(["bound"] if self.bound else []),
                *(["exec"] if self.exec else []),
            ]
        )


EVERYBODY = [
    Who(role, bound, may_exec)
    for role in Role
    for bound in (False, True)
    for may_exec in (False, True)
]


def may(who: Who, route: Operation, node: str) -> bool:
    """Whether a caller is to be let through, by what the route says it needs."""
    if who.role < route.role or (route.exec and not who.exec):
        return False
    if not who.bound or route.reach in (Reach.SHOWN, Reach.NONE):
        return True
    return route.reach is not Reach.SITE and node == OWN


def request(route: Operation, node: str) -> tuple[str, Any]:
    """(path, body) of a request that names a node wherever the route has a place for one."""
    path = route.path.replace("{id}", str(OWN_ROLL if node == OWN else OTHER_ROLL))
    noun = path.split("/")[2]
    path = path.replace("{name}", node if noun == "nodes" else NAMES.get(noun, ""))
    path = path.replace("{mac}", "02:00:00:00:00:01")
    if route.method == "GET":
        return path + (
            f"?range={node}"
            if "range" in route.query
            else f"?node={node}"
            if route.path == "/v1/events"
            else ""
        ), None
    if route.body is None:
        return path, None
    body = BODIES[route.body.__name__]
    return path, {**body, "range": node} if "range" in route.body.__struct_fields__ else body


async def let_through(
    api: Any, world: World, route: Operation, node: str, headers: dict[str, str]
) -> bool:
    """Whether a request gets past the gate. A handler may refuse it too; then it is recorded, or is
    no change."""
    before = len(on_disk(world.directory, "SELECT id FROM audit"))
    path, body = request(route, node)
    async with api.request(route.method, path, json=body, headers=headers) as answer:
        recorded = len(on_disk(world.directory, "SELECT id FROM audit")) > before
        assert answer.status != 500, await answer.text()
        assert not (recorded and answer.status == 401)
        if route.changes:
            assert recorded or answer.status in (401, 403)
            return recorded
        assert not recorded
        return answer.status not in (401, 403)


@pytest.fixture
async def api(world: World) -> AsyncIterator[Any]:
    async with served(world.head, local=False) as client:
        yield client


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
async def test_the_route_is_for_whom_it_says(world: World, api: Any, route: Operation) -> None:
    for who in EVERYBODY:
        headers = await token(
            world.head,
            who.name,
            who.role.name,
            *(["physics"] if who.bound else []),
            may_exec=who.exec,
        )
        for node in (OTHER, OWN):
            assert await let_through(api, world, route, node, headers) == may(who, route, node), (
                who.name,
                node,
            )


async def test_nobody_gets_in_with_a_token_that_does_not_hold(world: World, api: Any) -> None:
    """What is refused changes nothing, so one head is enough for all routes."""
    expired = await token(world.head, "expired", "admin", may_exec=True, seconds=60.0)
    revoked = await token(world.head, "revoked", "admin", may_exec=True)
    for headers in (expired, revoked):
        async with api.get("/v1/tokens", headers=headers) as answer:
            assert answer.status == 200, "it held"
    world.clock.now += 60.0
    await world.ops.tokens.revoke("revoked")
    for route in ROUTES:
        path, body = request(route, OWN)
        for headers in (
            expired,
            revoked,
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": revoked["Authorization"].swapcase()},
        ):
            async with api.request(route.method, path, json=body, headers=headers) as answer:
                assert answer.status == 401, (route.method, path)


async def test_no_body_is_larger_than_its_route_says(world: World, api: Any) -> None:
    headers = await token(world.head, "admin", "admin", may_exec=True)
    with_body = [route for route in ROUTES if route.body is not None]
    large = {route.path for route in with_body if route.most > SMALL_BODY}
    assert large == {
        "/v1/inventory/plan",
        "/v1/inventory/apply",
        "/v1/files/diff",
        "/v1/nodes/copy",
    }
    for route in with_body:
        if route.path not in large:
            path, _ = request(route, OWN)
            blanks = b" " * (route.most + 1)
            async with api.request(route.method, path, data=blanks, headers=headers) as answer:
                assert answer.status == 400, path
                assert f"larger than {route.most} bytes" in await answer.text()


RANGED = [r for r in ROUTES if r.reach is Reach.RANGE]


@pytest.mark.parametrize(
    "text",
    [
        "phys0,chem0",
        "chem[0-3]",
        "nobody",
        "@chemistry",
        "@nothing",
        "phys0,@chemistry",
        "@all,chem0",
    ],
)
async def test_a_bound_caller_cannot_name_others(world: World, api: Any, text: str) -> None:
    """Whether they exist or not: the refusal is the same."""
    headers = await token(world.head, "bound", "admin", "physics", may_exec=True)
    for route in RANGED:
        path, body = request(route, text)
        async with api.request(route.method, path, json=body, headers=headers) as answer:
            told = await answer.json()
            refused = (answer.status, "the groups physics" in told["error"])
            assert refused == (403, True), (route.method, path, told)


async def test_no_range_is_the_whole_site_and_not_for_a_bound_caller(
    world: World, api: Any
) -> None:
    headers = await token(world.head, "bound", "admin", "physics", may_exec=True)
    for route in RANGED:
        if route.body is not None:
            path, body = request(route, "")
            async with api.request(route.method, path, json=body, headers=headers) as answer:
                assert answer.status == 403, (route.method, path)
    assert world.head.part(Guard).freeze is None


async def test_a_range_counts_by_its_nodes(
    world: World, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(
        "layercake.api.gate.charge_names", lambda request, count: counted.append(count)
    )
    headers = await token(world.head, "all", "viewer")
    for text in ("@all", "chem0,phys0", "n[", "n[0-999]"):
        async with api.get("/v1/nodes", params={"range": text}, headers=headers) as answer:
            assert answer.status in (200, 400, 404)
    assert counted == [1 + len(world.head.store), 2, 0, 1000]


async def test_all_are_ones_own_nodes(world: World, api: Any) -> None:
    headers = await token(world.head, "bound", "operator", "physics")
    async with api.post(
        "/v1/nodes/state", json={"range": "@all", "state": "off"}, headers=headers
    ) as answer:
        assert (await answer.json()) == {"nodes": [OWN]}
    assert (world.node(OWN).node.state, world.node(OTHER).node.state) == ("off", "up")
    async with api.get("/v1/nodes", headers=headers) as answer:
        assert [n["name"] for n in (await answer.json())["nodes"]] == [OWN]


async def test_a_node_that_changes_its_group_changes_its_people(world: World, api: Any) -> None:
    headers = await token(world.head, "bound", "operator", "physics")
    moved = re.sub(r"(?<=groups: )\[physics\]", "[chemistry]", RACK)
    await world.ops.inventory.apply(moved, "rack.yaml", None, False)
    async with api.get("/v1/nodes", headers=headers) as answer:
        assert (await answer.json())["nodes"] == []
    async with api.post("/v1/nodes/clear", json={"range": OWN}, headers=headers) as answer:
        assert answer.status == 403


async def test_calls_have_the_role_of_their_module(world: World, api: Any) -> None:
    viewer, operator = (
        await token(world.head, "look", "viewer"),
        await token(world.head, "work", "operator"),
    )
    for name, headers, refused in (
        ("power.refresh", viewer, True),
        ("power.log", viewer, True),
        ("power.refresh", operator, False),
        ("power.sensors", viewer, False),
    ):
        async with api.post(f"/v1/calls/{name}", json={"range": OWN}, headers=headers) as answer:
            assert (answer.status == 403) == refused, name
    bound = await token(world.head, "bound", "admin", "physics")
    async with api.post("/v1/calls/boot.stats", json={}, headers=bound) as answer:
        assert answer.status == 403, "it is about no node, and so about all"


async def test_what_a_bound_viewer_is_shown_names_no_other_node(world: World, api: Any) -> None:
    bound, everything = (
        await token(world.head, "bound", "viewer", "physics"),
        await token(world.head, "all", "admin"),
    )
    shown = 0
    for route in ROUTES:
        if (
            route.method != "GET"
            or route.path.endswith(("/ws", "/diff"))
            or route.role > Role.VIEWER
        ):
            continue
        path, _ = request(route, OWN)
        path = (
            path.replace("{name}", OWN)
            .replace("/v1/images/none", "/v1/images/one")
            .partition("?")[0]
        )
        async with api.get(path, headers=bound) as answer:
            assert OTHER not in await answer.text(), path
        async with api.get(path, headers=everything) as answer:
            shown += OTHER in await answer.text()
    assert shown >= 4, "there is something to hide"


async def test_a_bound_viewer_counts_and_follows_its_own_nodes_alone(
    world: World, api: Any
) -> None:
    bound = await token(world.head, "bound", "viewer", "physics")
    async with api.get("/v1/status", headers=bound) as answer:
        assert (await answer.json())["nodes"]["total"] == 1
    async with api.get("/v1/events", params={"node": OTHER}, headers=bound) as answer:
        assert (await answer.json())["events"] == []
    async with api.ws_connect("/v1/events/ws", headers=bound) as mine:
        for name in (OTHER, OWN):
            world.head.store.event(world.node(name), events.SYNC_ATTACHED, f"{name} speaks")
        world.head.store.event(None, events.HEAD_STARTED, f"{OTHER} and others")
        world.head.store.event(world.node(OWN), events.SYNC_ATTACHED, "the last one")
        text = ""
        while "the last one" not in text:
            text += (await mine.receive(timeout=60)).data
        assert f"{OWN} speaks" in text and OTHER not in text


async def test_a_viewer_is_not_told_which_secrets_and_files_there_are(
    world: World, api: Any
) -> None:
    viewer = await token(world.head, "look", "viewer")
    operator = await token(world.head, "root", "admin")
    asks = {
        "password: {env: NOBODY}": "password: {env: PATH}",
        "images: [one], kernel_args": "images: [one], files: {/etc/x: {source: none}}, kernel_args",
    }
    answers = {"viewer": [], "admin": []}  # type: ignore[var-annotated]
    for before, after in (("", ""), *asks.items()):
        body = {"yaml": RACK.replace(before, after) if before else RACK}
        for who, headers in (("viewer", viewer), ("admin", operator)):
            async with api.post("/v1/inventory/plan", json=body, headers=headers) as answer:
                found = await answer.json()
                answers[who].append((answer.status, found.get("warnings"), found.get("files")))
    assert answers["viewer"] == [(200, [], [])] * 3, "each of them is the same to him"
    assert len({str(one) for one in answers["admin"]}) == 3


async def test_a_viewer_cannot_guess_by_a_query_what_is_not_shown(world: World, api: Any) -> None:
    viewer = await token(world.head, "look", "viewer")
    operator = await token(world.head, "work", "operator")
    for where in ("serial=SN-1", "not place:switch=sw1", "name=phys0 or place:port!=1"):
        for path in ("/v1/nodes", "/v1/events"):
            params = {"where": where}
            async with api.get(path, params=params, headers=viewer) as answer:
                assert answer.status == 400 and "nodes have no" in await answer.text()
            async with api.get(path, params=params, headers=operator) as answer:
                assert answer.status == 200, await answer.text()
