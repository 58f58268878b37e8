"""Webhooks over real HTTP: what they are told, signed, again until it is taken; one that hangs is
in nobody's way."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from layercake.base.secrets import Vault
from layercake.features.webhooks import post, sender
from layercake.features.webhooks.formats import FORMATS, alerts
from layercake.features.webhooks.post import Post
from layercake.features.webhooks.sender import Receiver as Pager
from layercake.features.webhooks.settings import OF_WEBHOOKS, WebhookSettings, kinds, url
from layercake.fleet import events
from layercake.fleet.store import Event, Record
from layercake.kernel import delivery
from layercake.kraken.events import QUARANTINE_CLEARED, QUARANTINE_SET, EventKind
from layercake.moduleapi.fields import Mistake, secret_name
from pxe.events import OTHER_SERVER
from tests.support.world import World

SECRET = "a-canary-that-signs"


class Receiver:
    """What a webhook is told; `answers` are the status codes of the next requests, 200 when there
    are none left."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[Any, dict[str, Any]]] = []
        self.asked = 0
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked += 1
        await self.hangs.wait()
        status = self.answers.pop(0) if self.answers else 200
        if 200 <= status < 300:
            said = json.loads(body)
            whole = {**said, "raw": body} if isinstance(said, dict) else {"alerts": said}
            self.got.append((request.headers, whole))
        return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/elsewhere"})

    def was_asked(self, times: int) -> bool:
        return self.asked == times

    @property
    def texts(self) -> list[str]:
        return [event["text"] for _, body in self.got for event in body["events"]]


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Receiver, str]]:
    monkeypatch.setattr(post, "GATHER_S", 0.01)
    monkeypatch.setattr(post, "ALERTS_GATHER_S", 0.01)
    monkeypatch.setattr(delivery, "FIRST_S", 0.01)
    found, app = Receiver(), web.Application()
    app.router.add_post("/hook", found.handle)
    async with TestServer(app) as server:
        yield found, str(server.make_url("/hook"))
        found.hangs.set()


class Told:
    """Webhooks of a world's head, as the head begins and ends them."""

    def __init__(self, world: World, **settings: Any) -> None:
        self._world, self._settings = world, WebhookSettings(**settings)
        self._tasks: list[asyncio.Task[None]] = []

    def expected(self, record: Record) -> bool:
        """Who is in maintenance, or in an outage."""
        return record.care.maintenance is not None

    async def __aenter__(self) -> Told:
        place = self._world.directory / "hooks/webhooks"
        place.mkdir(parents=True, exist_ok=True)
        (place / "key").write_text(SECRET)
        vault = Vault(self._world.directory / "hooks", {})
        store = self._world.head.store
        transport = Post(self._settings, vault, "10.1.0.1", store.wall)
        webhook = Pager(
            "webhook pager", "webhooks/pager", self._settings, transport, store, self.expected
        )
        self._tasks = [asyncio.create_task(webhook.run(self._world.head.database))]
        await asyncio.sleep(0)  # it begins
        await asyncio.sleep(0)  # it listens
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.01)


def happens(world: World, *texts: str) -> None:
    for text in texts:
        world.head.store.event(world.node("n0"), events.BOOT_SLOW, text)


def kinds_of(world: World) -> list[str]:
    return [e.kind for e in world.head.store.events if e.kind.startswith("webhook.")]


async def test_events_are_told_signed_and_in_order(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    async with Told(world, url=where, secret="key"):
        world.head.store.event(world.node("n0"), events.NODE_EVENT, "not grave enough")
        happens(world, "one", "two")
        await until(lambda: found.texts == ["one", "two"])
    headers, body = found.got[0]
    signed = hmac.new(
        SECRET.encode(), headers["X-Layercake-Time"].encode() + b"." + body["raw"], hashlib.sha256
    ).hexdigest()
    assert headers["X-Layercake-Signature"] == f"sha256={signed}" and SECRET not in str(body)
    assert (
        body["head"] == "10.1.0.1" and body["left_out"] == 0 and body["events"][0]["node"] == "n0"
    )


async def test_it_is_told_again_until_it_takes_it(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    found.answers = [500, 302, 429]
    async with Told(world, url=where, kinds=["node.boot", "webhook"]):
        happens(world, "one")
        await until(lambda: found.texts == ["one"])
        happens(world, "two")
        await until(lambda: found.texts == ["one", "two"])
    assert found.asked == 5 and kinds_of(world) == ["webhook.failed", "webhook.well"], (
        "said once, and never told to itself"
    )
    assert "127.0.0.1 answers 500" in next(
        e.text for e in world.head.store.events if e.kind == "webhook.failed"
    )


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_what_is_refused_for_good_is_given_up_and_told_once(
    world: World, receiver: tuple[Receiver, str], status: int
) -> None:
    found, where = receiver
    found.answers = [status, status]
    async with Told(world, url=where):
        for number, text in enumerate(("one", "two", "three"), 1):
            happens(world, text)
            await until(partial(found.was_asked, number))
        await until(lambda: found.texts == ["three"])
        happens(world, "four")
        await until(lambda: found.texts == ["three", "four"])
    said = {e.kind: e.text for e in world.head.store.events if e.kind.startswith("webhook.")}
    assert kinds_of(world) == ["webhook.refused", "webhook.well"]
    assert f"127.0.0.1 answers {status}" in said["webhook.refused"]
    assert "2 events refused" in said["webhook.well"]


async def test_what_one_alert_is_refused_for_is_not_held_against_the_others(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    found.answers = [400]
    async with Told(world, url=where, format="pagerduty", secret="key"):
        happens(world, "a cause")
        world.head.store.event(world.node("n1"), events.BOOT_SLOW, "quite another one")
        await until(lambda: found.got)
        await until(lambda: kinds_of(world))
    assert [body["payload"]["summary"] for _, body in found.got] == [
        "node.boot-slow of n1: quite another one"
    ]
    assert found.asked == 2


async def test_one_that_fails_for_a_day_keeps_a_bounded_queue_and_it_is_said(
    world: World, receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, where = receiver
    monkeypatch.setattr(sender, "MOST", 20)
    monkeypatch.setattr(sender, "LONGEST_S", 0.01)
    found.answers = [500] * 10_000
    async with Told(world, url=where):
        happens(world, "first")
        await until(lambda: found.asked > 2)
        for burst in range(3):
            happens(world, *(f"{burst}.{number}" for number in range(50)))
        await until(lambda: len(kinds_of(world)) == 2)
        asked = found.asked
        await until(lambda: found.asked > asked + 5)
        found.answers.clear()
        await until(lambda: found.texts[-1:] == ["2.49"])
    assert kinds_of(world) == ["webhook.failed", "webhook.failed", "webhook.well"]
    texts = [e.text for e in world.head.store.events if e.kind.startswith("webhook.")]
    assert "20 events wait, and the oldest are left out from now on" in texts[1]
    assert found.texts == ["first", *(f"2.{number}" for number in range(30, 50))]
    assert sum(body["left_out"] for _, body in found.got) == 130


async def test_one_that_hangs_keeps_a_bounded_queue(
    world: World, receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, where = receiver
    monkeypatch.setattr(sender, "MOST", 20)
    monkeypatch.setattr(post, "AT_ONCE", 5)
    found.hangs.clear()
    async with Told(world, url=where):
        happens(world, "first")
        await until(lambda: found.asked)
        happens(world, *map(str, range(100)))
        found.hangs.set()
        await until(lambda: found.texts[-1:] == ["99"])
    assert found.texts == ["first", *map(str, range(80, 100))]
    assert sum(body["left_out"] for _, body in found.got) == 80


async def test_one_that_answers_500_for_a_day_costs_a_queue_and_hears_the_rest(
    world: World, receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, where = receiver
    monkeypatch.setattr(delivery, "FIRST_S", 0.0005)
    monkeypatch.setattr(sender, "LONGEST_S", 0.001)
    monkeypatch.setattr(sender, "MOST", 500)
    tries = round(24 * 3600 / 300)
    found.answers = [500] * tries
    async with Told(world, url=where):
        happens(world, "first")
        await until(lambda: found.asked > 10)
        for number in range(2000):  # of the head: of one node fewer are kept
            world.head.store.event(None, events.BOOT_SLOW, str(number))
        await until(lambda: found.texts[-1:] == ["1999"])
    assert found.texts == ["first", *map(str, range(1500, 2000))]
    assert sum(body["left_out"] for _, body in found.got) == 1500
    assert found.asked == tries + len(found.got)
    failed, full, well = (e for e in world.head.store.events if e.kind.startswith("webhook."))
    assert (failed.kind, well.kind) == ("webhook.failed", "webhook.well"), "once, not at each try"
    assert full.kind == "webhook.failed" and "500 events wait, and the oldest are left" in full.text
    assert "1500 events left out" in well.text


async def test_one_that_was_away_hears_what_it_has_missed(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    async with Told(world, url=where):
        happens(world, "before")
        await until(lambda: found.texts == ["before"])
    happens(world, "while nobody listened")
    await world.restart()
    async with Told(world, url=where):
        happens(world, "after")
        await until(lambda: found.texts[-1:] == ["after"])
    assert found.texts == ["before", "while nobody listened", "after"]


async def test_a_new_one_is_not_told_what_was_long_ago(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    happens(world, "long ago")
    async with Told(world, url=where):
        happens(world, "now")
        await until(lambda: found.texts == ["now"])


async def test_a_url_that_is_a_secret_is_shown_nowhere(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    place = world.directory / "hooks/webhooks"
    place.mkdir(parents=True)
    (place / "where").write_text(where.replace("/hook", "/canary-path"))
    async with Told(world, url_secret="where"):
        happens(world, "one")
        await until(lambda: kinds_of(world))
        (place / "where").write_text(where)
        happens(world, "two")
        await until(lambda: found.texts == ["two"])
    assert "canary" not in str([e.text for e in world.head.store.events])


async def test_one_without_a_url_or_a_secret_says_so(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    async with Told(world, url=receiver[1], secret="none"):
        happens(world, "one")
        await until(lambda: kinds_of(world))
    assert "No such file" in next(
        e.text for e in world.head.store.events if e.kind == "webhook.failed"
    )


@pytest.mark.parametrize(
    "word",
    [
        "ftp://x/",
        "http://example.org/",
        "https://u:p@example.org/",
        "https://",
        "x",
        "https://a b/",
        "https://h:99999/",
    ],
)
def test_urls_that_are_refused(word: str) -> None:
    with pytest.raises(Mistake):
        url(word)
    assert (
        url("https://example.org/x?y=1")
        and url("http://[::1]:80/")
        and url("http://localhost/")
        and url("") == ""
    )


def test_names_and_kinds_that_are_refused(tmp_path: Path) -> None:
    for word in ("../x", "a/b", ".x", "x" * 65):
        with pytest.raises(Mistake):
            secret_name(OF_WEBHOOKS)(word)
    for value in ("x", [1], [""], ["x"] * 101):
        with pytest.raises(Mistake):
            kinds(value)


RACK = """
defaults: {console: ttyS0, images: []}
nodes:
  n[0-9]: {mac: "52:54:00:00:00:10+", ip: 10.1.0.10+}
"""
HOSTILE = "<!channel> [x](http://evil) `@all` <script>"


def outage(world: World, *, over: bool = False) -> None:
    kind = events.OUTAGE_OVER if over else events.OUTAGE_CALLED
    world.head.store.event(None, kind, "an outage of domain r1", data={"domain": "r1"})


@pytest.mark.parametrize("form", ["slack", "mattermost", "teams", "pagerduty", "alertmanager"])
async def test_many_nodes_are_one_alert_in_the_words_of_its_receiver(
    world: World, receiver: tuple[Receiver, str], form: str
) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    found, where = receiver
    async with Told(world, url=where, format=form, secret="key"):
        for number in range(8):
            record = world.node(f"n{number}")
            world.head.store.event(record, events.BOOT_SLOW, f"it takes long: {HOSTILE}")
        outage(world)
        outage(world, over=True)
        await until(lambda: "OVER: outage.over" in str(found.got))
    whole = str([body for _, body in found.got])
    assert whole.count("it takes long") == 1 * (2 if "raw" in found.got[0][1] else 1)
    assert "n[0-7]" in whole
    if form == "slack":
        assert "<" not in found.got[0][1]["text"]
    if form == "mattermost":
        assert found.got[0][1]["text"].count("`") == 6


async def test_what_is_over_resolves_what_a_pager_was_told(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    async with Told(world, url=where, format="pagerduty", secret="key", kinds=["outage", "quaran"]):
        outage(world)
        outage(world, over=True)
        world.head.store.event(world.node("n0"), QUARANTINE_SET, "given up")
        world.head.store.event(world.node("n0"), QUARANTINE_CLEARED, "cleared by ann")
        await until(lambda: len(found.got) == 4)
    said = [body for _, body in found.got]
    assert [one["event_action"] for one in said] == ["trigger", "resolve"] * 2
    assert [one["dedup_key"] for one in said] == [
        *["layercake/10.1.0.1/outage.called r1"] * 2,
        *["layercake/10.1.0.1/quarantine.set n0"] * 2,
    ], "also what ends it, which is not so grave"
    assert all(one["routing_key"] == SECRET for one in said)


async def test_alertmanager_is_told_when_it_is_over(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    found, where = receiver
    async with Told(world, url=where, format="alertmanager"):
        outage(world)
        outage(world, over=True)
        await until(lambda: found.got)
        world.head.store.event(world.node("n0"), events.BOOT_SLOW, "slow")
        await until(lambda: "slow" in str(found.got))
    begun, over = found.got[0][1]["alerts"]
    assert begun["labels"] == over["labels"], "it is known by them"
    assert begun["startsAt"] <= over["endsAt"] < begun["endsAt"], "not over by itself before"
    assert "endsAt" not in found.got[-1][1]["alerts"][-1], "nothing ends this"


async def test_nodes_in_maintenance_are_no_alert_and_security_is(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    await world.ops.care.begin("n0", "a new board", "ann", None)
    found, where = receiver
    async with Told(world, url=where, format="slack"):
        happens(world, "expected")
        world.head.store.event(world.node("n0"), OTHER_SERVER, "another server")
        world.head.store.event(world.node("n1"), events.BOOT_SLOW, "not expected")
        await until(lambda: "not expected" in str(found.got))
    text = found.got[-1][1]["text"]
    assert "another server" in text and ": expected" not in text


async def test_what_ends_an_alert_is_told_in_a_maintenance_too(
    world: World, receiver: tuple[Receiver, str]
) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    found, where = receiver
    async with Told(world, url=where, format="pagerduty", secret="key", kinds=["quaran"]):
        world.head.store.event(world.node("n0"), QUARANTINE_SET, "given up")
        await until(lambda: found.got)
        await world.ops.care.begin("n0", "a new board", "ann", None)
        world.head.store.event(world.node("n0"), QUARANTINE_CLEARED, "cleared by ann")
        await until(lambda: len(found.got) == 2)
    assert [body["event_action"] for _, body in found.got] == ["trigger", "resolve"]


async def test_it_is_told_how_many_were_left_out_also_where_no_other_is_news(
    world: World, receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MOST", 2)
    await world.ops.inventory.apply(RACK, "rack.yaml", None, True)
    await world.ops.care.begin("n0", "a new board", "ann", None)
    found, where = receiver
    async with Told(world, url=where, format="slack"):
        happens(world, *"abcde")
        await until(lambda: found.got)
    assert found.got[0][1]["text"] == "Layercake 10.1.0.1\n3 events left out"


def of_node(number: int, node: str, kind: EventKind, text: str = "given up") -> Event:
    return Event(number, float(number), node, kind.name, kind.severity.value, text)


def test_what_begins_again_after_its_end_is_open() -> None:
    happened = [
        of_node(number, "n0", kind)
        for number, kind in enumerate((QUARANTINE_SET, QUARANTINE_CLEARED, QUARANTINE_SET))
    ]
    told = FORMATS["pagerduty"](alerts(happened), "h", 0, "")
    assert [one["event_action"] for one in told if isinstance(one, dict)] == ["resolve", "trigger"]


@pytest.mark.parametrize("form", ["slack", "mattermost", "teams"])
def test_a_message_to_a_chat_is_never_too_long_to_be_taken(form: str) -> None:
    words = [chr(ord("a") + n // 26) + chr(ord("a") + n % 26) for n in range(post.AT_ONCE)]
    happened = [of_node(n, f"n{n}", QUARANTINE_SET, words[n] * 1000) for n in range(post.AT_ONCE)]
    (body,) = FORMATS[form](alerts(happened), "h", 7, "")
    said = json.dumps(body)
    assert len(said) < 16_383
    assert "189 more alerts: layercake events" in said and "7 events left out" in said


def test_what_nothing_ends_is_an_incident_of_its_own_each_time() -> None:
    happened = [of_node(n, f"n{n}", events.BOOT_SLOW, f"it takes long: {n}") for n in (1, 2)]
    first, second = (FORMATS["pagerduty"](alerts([one]), "h", 0, "")[0] for one in happened)
    assert first["dedup_key"] != second["dedup_key"]  # type: ignore[call-overload]
    again = FORMATS["pagerduty"](alerts([happened[0]]), "h", 0, "")[0]
    assert again == first, "what is sent once more is the same"
