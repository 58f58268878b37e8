"""A node is described by one word, whoever is asked: lists, explanations, causes, counts, queries,
metrics and the report; of nodes in every condition, whatever a person has said of them."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from layercake import dashboard
from layercake.cli.main import main
from layercake.cli.watch import LETTERS
from layercake.client.watch import converged
from layercake.features.guard.guard import Guard
from layercake.features.guard.outage import Outage
from layercake.features.nodes.causes import CauseFinder
from layercake.features.nodes.views import AS_WANTED, Status
from layercake.features.status.answers import NodeCounts
from layercake.fleet.store import Hold, Record
from layercake.kraken.converge import Barred, Discovered
from tests.support.api import served
from tests.support.world import World

WEB = Path(dashboard.__file__).parent / "web"
AS_DESIRED = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "IDLE", "busy": "FREE"}
BOOTS = {"power": "ON", "boot": "WAIT", "run": "UNKNOWN"}
IN_OUTAGE = {"power": "ON", "boot": "UNKNOWN", "run": "UNKNOWN"}


def _backs_off(world: World, record: Record) -> None:
    later = world.clock.now + 500
    record.machine = dataclasses.replace(record.machine, active=None, asked="", not_before=later)


CONDITIONS: dict[str, tuple[dict[str, str], Callable[[World, Record], None]]] = {
    "well": (AS_DESIRED, lambda world, record: None),
    "unwell": (AS_DESIRED, lambda world, record: setattr(record, "unhealthy", "web: no answer")),
    "boots": (BOOTS, lambda world, record: None),
    "off": ({"power": "OFF"}, lambda world, record: None),
    "givenup": (BOOTS, lambda world, record: world.head.engine.post(record, Barred("the fan"))),
    "fatal": ({**AS_DESIRED, "image": "FATAL"}, lambda world, record: None),
    "backsoff": ({"power": "OFF"}, _backs_off),
    "released": (BOOTS, lambda world, record: setattr(record, "held", Hold("it is released"))),
    "silent": (IN_OUTAGE, lambda world, record: None),
    "silentoff": ({"power": "OFF", "boot": "UNKNOWN"}, lambda world, record: None),
}
"""{condition: what is seen of the node, and what else happens to it}"""
STOPS = ("free", "frozen", "kept")
NAMES = [f"{condition}-{stop}" for condition in CONDITIONS for stop in STOPS]
SITE = "defaults: {console: ttyS0, images: [], state: up}\nnodes:\n" + "".join(
    f'  {name}: {{mac: "52:54:00:00:01:{number:02x}", ip: "10.1.0.{number + 10}"}}\n'
    for number, name in enumerate(NAMES)
)


@pytest.fixture
async def site(world: World) -> World:
    await world.ops.inventory.apply(SITE, "site.yaml", None, True)
    named = {stop: ",".join(n for n in NAMES if n.endswith(stop)) for stop in STOPS}
    await world.ops.care.freeze(named["frozen"], "the cooling is off", "ann")
    await world.ops.care.begin(named["kept"], "new memory", "ann", None)
    for name in NAMES:
        record = world.node(name)
        values, happens = CONDITIONS[name.partition("-")[0]]
        record.acked = record.cfg_revision
        world.head.engine.post(record, Discovered(values, "a test"))
        happens(world, record)
    return world


def call_outage(site: World) -> None:
    """An outage of the site, until the guard looks again."""
    silent = frozenset(site.node(n).node.id for n in NAMES if n.startswith("silent"))
    site.head.part(Guard).outages.replace_all({"": Outage("", 0.0, silent, len(NAMES))})


def by_word(words: dict[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, word in words.items():
        found.setdefault(word, set()).add(name)
    return found


def of_causes(answer: dict[str, Any]) -> dict[str, str]:
    """The word of each node in an answer of /v1/causes."""
    return {name: one["status"] for one in answer["causes"] for name in one["nodes"]}


@pytest.mark.parametrize("frozen", [False, True], ids=["", "site-frozen"])
async def test_a_node_is_described_by_one_word_everywhere(
    site: World, capsys: pytest.CaptureFixture[str], frozen: bool
) -> None:
    if frozen:
        await site.ops.care.freeze("", "the chiller is off", "ann")
    call_outage(site)
    async with served(site.head, local=True) as client:

        async def get(path: str, **query: str) -> Any:
            answer = await client.get(path, params=query)
            assert answer.status == 200, await answer.text()
            return await answer.json()

        listed = {one["name"]: one["status"] for one in (await get("/v1/nodes"))["nodes"]}
        assert set(listed) == set(NAMES)
        words = by_word(listed)
        assert words.keys() >= {"converged", "unwell", "silent", "held", "quarantined"}
        assert ("working" in words) is not frozen
        for name in NAMES:
            told = (await get(f"/v1/nodes/{name}"))["node"]["status"]
            explained = (await get(f"/v1/nodes/{name}/explain"))["explanation"]["status"]
            assert told == explained == listed[name], name
        causes = await get("/v1/causes")
        not_as_wanted = {n: word for n, word in listed.items() if word not in _WELL}
        assert of_causes(causes) == not_as_wanted
        assert causes["well"] == len(NAMES) - len(not_as_wanted)
        counts = (await get("/v1/status"))["nodes"]
        assert counts == {
            "total": len(NAMES),
            **{word.value: len(words.get(word.value, ())) for word in Status},
        }
        for status in Status:
            found = await get("/v1/nodes", where=f"status={status.value}", fields="name")
            assert {one["name"] for one in found["nodes"]} == words.get(status.value, set())
        report = (await get("/v1/report"))["nodes"]
        assert {word: n for word, n in report.items() if n} == Counter(listed.values())
        page = await (await client.get("/v1/metrics")).text()
        socket = client.connector.path
        for typed in COMMANDS:
            await asyncio.to_thread(main, ["--socket", socket, *typed.split()])
            shown = counts_in(capsys.readouterr().out, COMMANDS[typed])
            expected = not_as_wanted if typed == "explain" else listed
            assert shown == Counter(expected.values()), typed
    assert re.search(r'cause="[^"]*: \.\.\. of \.\.\. nodes fell silent', page)
    assert not re.search(r"\b(NODE|ADDRESS|N)\b", page), "no placeholder is shown"
    counted = dict(re.findall(r'^layercake_nodes\{status="(\w+)"\} (\d+)', page, re.MULTILINE))
    assert {word: int(n) for word, n in counted.items() if int(n)} == Counter(listed.values())
    brief = await site.head.part(CauseFinder).of(None, True)
    assert {n: c.status for c in brief["causes"] for n in c.nodes} == not_as_wanted


COMMANDS = {
    "status": r"nodes .*",
    "report": r"\d+ nodes: .*",
    "watch --timeout 0": r"\d+ nodes: .*",
    "explain": r"\d+ [a-z]+(?= for|:)",
}
"""{command: what of its lines says how many nodes are how}"""


def counts_in(text: str, line: str) -> Counter[str]:
    """How many nodes are how by what a command has printed."""
    found = Counter[str]()
    for shown in re.findall(f"^{line}", text, re.MULTILINE):
        for count, word in re.findall(r"(\d+) ([a-z]+)", shown):
            found[word] += int(count) if word in WORDS else 0
    return +found


WORDS = {status.value for status in Status}
_WELL = {status.value for status in AS_WANTED - {Status.UNWELL}}


def test_every_table_of_the_words_has_all_of_them() -> None:
    """A status that is new has its letter, its colours and its count wherever the others do."""
    assert set(LETTERS) == WORDS
    assert {field.name for field in fields(NodeCounts)} == WORDS | {"total"}
    script = (WEB / "words.js").read_text(encoding="utf-8").partition("STATUSES = {")[2]
    assert set(re.findall(r"^  (\w+): ", script.partition("\n};")[0], re.MULTILINE)) == WORDS
    tiles = (WEB / "wrong.js").read_text(encoding="utf-8").partition("const order = ")[2]
    assert set(re.findall(r'"(\w+)"', tiles.partition("\n")[0])) == WORDS
    style = "".join((WEB / name).read_text(encoding="utf-8") for name in ("base.css", "views.css"))
    for word in WORDS:
        assert f"--{word}:" in style and f"--on-{word}:" in style
        as_wanted = converged({"status": word, "state": {}, "goal": {}})
        assert as_wanted is (Status(word) in AS_WANTED)


async def test_what_waits_for_another_attempt_is_read_of_by_the_step_that_failed(
    site: World,
) -> None:
    record = site.node("backsoff-free")
    record.machine = dataclasses.replace(record.machine, attempts={"power-on": 1})
    async with served(site.head, local=True) as client:
        answer = await (await client.get("/v1/causes", params={"range": record.name})).json()
    assert [one["page"] for one in answer["causes"]] == ["bmc-troubles"]


async def test_what_holds_silent_nodes_does_not_hold_those_that_are_known_to_be_dead(
    site: World,
) -> None:
    call_outage(site)
    async with served(site.head, local=True) as client:
        answer = await (await client.get("/v1/causes")).json()
    silent = next(one for one in answer["causes"] if one["status"] == "silent")
    assert silent["nodes"] == ["silent-free", "silent-frozen", "silent-kept"]
    assert "an outage of the site" in silent["text"] and silent["needs"] == "person"
