"""What viewers are not shown: a canary in every place that can hold a command line, an environment,
where a BMC is, or what something said when it failed."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from docs.generator.interfaces import routes
from imageapi.events import EVENTS as IMAGE_EVENTS
from layercake.api.caller import Caller
from layercake.features.events.views import meanings
from layercake.features.rolls.facts import Phase, document_of
from layercake.features.rolls.manager import Rolls
from layercake.fleet import events
from layercake.fleet.store import Event, Interface
from layercake.kraken.errors import Unreachable
from layercake.kraken.facts import Quarantine
from layercake.moduleapi.module import Role
from powerman import events as power_events
from tests.access.conftest import OTHER, OWN, OWN_ROLL, RACK
from tests.support.api import served, token
from tests.support.world import World

CANARIES = [
    "canary-command",
    "canary-env",
    "canary-bmc",
    "canary-user",
    "canary-kernel",
    "canary-exec",
    "canary-output",
    "canary-why",
    "canary-live",
]
"""canary-output is what a container or a BMC said, canary-why the reason of a failure."""


async def plant(world: World) -> None:
    """Puts the canaries where a head has such things (those of the image and the inventory are
    there)."""
    record, store, rolls = world.node(OWN), world.head.store, world.head.part(Rolls)
    for kind in (
        *IMAGE_EVENTS,
        *power_events.EVENTS,
        events.MUTATION_CANCELLED,
        events.NODE_EVENT,
        events.STATE_CHANGED,
    ):
        if kind.severity in ("warning", "error") or kind.private:
            store.event(record, kind, "it said canary-output", data={"why": "canary-output"})
    store.event(
        record,
        events.NODE_EXEC,
        "ann runs on the node: mysql -pcanary-exec",
        data={"command": "canary-exec"},
    )
    store.event(record, events.NODE_EXEC_ENDED, "after 1.0 s, exit status 0: mysql -pcanary-exec")
    store.event(None, events.ROLL_PAUSED, "roll 1: canary-why", severity="error")
    record.unhealthy = "canary-output"
    record.containers = (
        {
            "name": "one",
            "digest": "x",
            "state": "dead",
            "health": "",
            "pid": 0,
            "started_s": None,
            "retries": 3,
            "last_error": "INIT_FAIL_LIMIT",
            "error": "canary-output",
            "retry_in_s": None,
        },
    )
    record.machine = dataclasses.replace(
        record.machine,
        last_error="canary-why",
        not_before=world.clock.now + 9.0,
        quarantine=Quarantine("power-on", "canary-why", world.clock.now, 3),
    )
    record.boots = replace(record.boots, agent_error="canary-why")
    record.interfaces = (Interface("bond0", trouble="canary-why"),)
    roll = rolls.get(OWN_ROLL)
    nodes = {k: replace(n, reason="canary-why") for k, n in roll.nodes.items()}
    paused = replace(roll, state=Phase.PAUSED, reason="canary-why", nodes=nodes)
    async with world.head.desire.transaction(revises=False) as transaction:
        transaction.documents[document_of(paused)] = partial(msgspec.msgpack.encode, paused)
    rolls.load()
    assert rolls.get(OWN_ROLL).reason == "canary-why"


async def everything(world: World, api: Any, headers: dict[str, str]) -> str:
    """All that a caller can be shown, in one text."""
    found = []
    for route in routes():
        path = (
            route.path.replace("{id}", str(OWN_ROLL))
            .replace("/images/{name}", "/images/one")
            .replace("{name}", OWN)
        )
        if route.method == "GET" and not path.endswith(("/ws", "/diff")):
            async with api.get(
                path, params={"range": OWN} if "range" in route.query else {}, headers=headers
            ) as answer:
                found.append(f"{path} {await answer.text()}")
    other = RACK.replace("canary-", "another-")
    for path, body in (
        ("/v1/inventory/plan", {"yaml": other}),
        ("/v1/calls/power.status", {"range": OWN}),
        ("/v1/calls/power.sensors", {"range": OWN}),
    ):
        async with api.post(path, json=body, headers=headers) as answer:
            found.append(f"{path} {await answer.text()}")
    async with api.ws_connect("/v1/events/ws", headers=headers) as socket:
        world.head.store.event(
            world.node(OWN), events.NODE_EXEC, "ann runs on the node: canary-live"
        )
        found.append(f"ws {(await socket.receive(timeout=60)).data}")
    return "\n".join(found)


@pytest.fixture
def bmc_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """powerman does not run here; what it says of a BMC that it cannot reach is this."""

    async def ask(call: str, params: Any) -> Any:
        raise Unreachable(
            "cannot log in to the BMC at canary-bmc.example as 'canary-user': no", hint="canary-why"
        )

    world.answer_calls(monkeypatch, ask)


async def test_no_viewer_is_shown_a_canary_and_operators_are_shown_each(
    world: World, bmc_fails: None
) -> None:
    await plant(world)
    async with served(world.head, local=False) as api:
        shown = {}
        for role in ("viewer", "operator"):
            headers = await token(world.head, role, role)
            shown[role] = await everything(world, api, headers)
    assert not re.findall(r".{0,80}canary-.{0,20}", shown["viewer"])
    assert [c for c in CANARIES if c not in shown["operator"]] == [], (
        "each of them was there to be seen"
    )
    assert "quarantined" in shown["viewer"] and "An attempt was called off" in shown["viewer"], (
        "what has happened, they see"
    )


def test_a_kind_that_nobody_knows_says_nothing() -> None:
    told = meanings({})(Event(1, 0.0, OTHER, "some.thing", "info", "canary", {"a": "canary"}))
    assert "canary" not in json.dumps(told)


def test_a_caller_gives_its_own_name_whatever_it_says() -> None:
    assert (
        Caller("bot", "token", Role.ADMIN)
        .by("ann\x1b[2J\n" + "x" * 500)
        .startswith("bot for ann[2J")
    )
    assert Caller("bot", "token", Role.ADMIN).by("") == "bot"
    assert len(Caller("bot", "token", Role.ADMIN).by("y" * 500)) <= 80
