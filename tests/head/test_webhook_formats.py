"""What receivers are told is what their vendors say that they take: each by the public description
of its format, and Alertmanager by Debian's own."""

from __future__ import annotations

import asyncio
import datetime
import json
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from promtool import alertmanager

from layercake.features.webhooks.formats import FORMATS, OF_EACH, alerts
from layercake.fleet import events
from layercake.fleet.store import Event
from layercake.kraken.events import QUARANTINE_CLEARED, QUARANTINE_SET, EventKind
from tests.support.servers import answers

HOSTILE = "<!channel> <@U1> &amp; [x](http://evil) `@all` **b** \n```\n@here"
KEY = "0123456789abcdef0123456789abcdef"


def of(number: int, kind: EventKind, text: str, node: str = "", **data: Any) -> Event:
    at = time.time() - 100 + number
    return Event(number, at, node, kind.name, kind.severity.value, text, data=data)


BEGUN = [
    of(1, events.OUTAGE_CALLED, "an outage of domain r1", domain="r1"),
    of(2, QUARANTINE_SET, f"given up: {HOSTILE}", "n0"),
    of(3, events.BOOT_SLOW, "it takes long", "n1"),
]
OVER = [
    of(4, events.OUTAGE_OVER, "domain r1: over", domain="r1"),
    of(5, QUARANTINE_CLEARED, "cleared by ann", "n0"),
]


def bodies(form: str, happened: Sequence[Event], left_out: int = 0) -> list[Any]:
    """As they are sent."""
    found = alerts(happened, of_each=form in OF_EACH)
    return [json.loads(json.dumps(one)) for one in FORMATS[form](found, "10.1.0.1", left_out, KEY)]


def test_slack() -> None:
    """Incoming webhooks: an object with `text`, of at most 40,000 characters, in which & < > are
    escaped and nothing else."""
    (body,) = bodies("slack", BEGUN, 3)
    assert body.keys() == {"text"} and len(body["text"]) <= 40_000
    assert "<" not in body["text"] and ">" not in body["text"]
    assert "&lt;!channel&gt; &lt;@U1&gt; &amp;amp;" in body["text"]
    assert "3 events left out" in body["text"]


def test_mattermost() -> None:
    """Incoming webhooks: an object with `text`, of at most 16,383 characters, as Markdown: all of
    it is code here."""
    (body,) = bodies("mattermost", [*BEGUN, *OVER], 3)
    assert body.keys() == {"text"} and len(body["text"]) <= 16_383
    first, *inside, last = body["text"].split("\n")
    assert first == last == "```" and not any("`" in line for line in inside)


def test_teams() -> None:
    """Workflows that post cards to a channel: a message whose attachments are Adaptive Cards, of at
    most 28 KB; a RichTextBlock and its TextRuns are of version 1.2 or later."""
    (body,) = bodies("teams", [*BEGUN, *OVER], 3)
    assert body["type"] == "message" and len(json.dumps(body)) <= 28 * 1024
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard" and tuple(map(int, card["version"].split("."))) >= (1, 2)
    assert card["$schema"] == "http://adaptivecards.io/schemas/adaptive-card.json"
    for block in card["body"]:
        assert block["type"] == "RichTextBlock"
        (run,) = block["inlines"]
        assert run.keys() == {"type", "text"} and run["type"] == "TextRun"


def test_a_message_to_teams_of_many_short_alerts_is_not_too_long() -> None:
    words = ["".join(chr(97 + int(c)) for c in f"{n:03}") for n in range(200)]
    happened = [of(n, events.BOOT_SLOW, words[n], f"n{n}") for n in range(200)]
    (body,) = bodies("teams", happened, 3)
    assert len(alerts(happened)) == 200 and len(json.dumps(body)) <= 28 * 1024


def test_pagerduty() -> None:
    """Events API v2: one object for each event, `trigger` with a payload or `resolve`, known by a
    `dedup_key` of at most 255 characters; a summary of at most 1,024, one of four severities, and a
    time of ISO 8601."""
    found = bodies("pagerduty", [*BEGUN, *OVER])
    assert [one["event_action"] for one in found] == ["trigger"] * 3 + ["resolve"] * 2
    for one in found:
        assert one["routing_key"] == KEY and 0 < len(one["dedup_key"]) <= 255
        payload = one["payload"]
        assert {"summary", "source", "severity"} <= payload.keys()
        assert 0 < len(payload["summary"]) <= 1024 and payload["source"]
        assert payload["severity"] in {"critical", "error", "warning", "info"}
        assert datetime.datetime.fromisoformat(payload["timestamp"]).tzinfo is not None
    keys = [one["dedup_key"] for one in found]
    assert keys[3:] == keys[:2] and len(set(keys)) == 3


BESIDE = 'mount -t overlay -o lowerdir="$0":/usr/share overlay /usr/share && exec "$@"'
"""Its templates are where its package has them, for it alone."""


@pytest.fixture
async def manager(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[str]:
    """The URL of an Alertmanager of Debian's."""
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: x}\nreceivers: [{name: x}]\n")
    command = [
        *("unshare", "--mount", "sh", "-c", BESIDE, str(alertmanager().parents[1] / "share")),
        str(alertmanager()),
        f"--config.file={tmp_path}/alertmanager.yml",
        f"--storage.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{unused_tcp_port}",
        "--cluster.listen-address=",
    ]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) as process,
    ):
        try:
            await asyncio.to_thread(answers, ("127.0.0.1", unused_tcp_port), process)
            yield f"http://127.0.0.1:{unused_tcp_port}/api/v2/alerts"
        finally:
            process.kill()


async def test_alertmanager_takes_alerts_and_what_ends_them(manager: str) -> None:
    async with aiohttp.ClientSession() as client:

        async def send(happened: Sequence[Event]) -> None:
            (body,) = bodies("alertmanager", happened)
            async with client.post(manager, json=body) as answer:
                assert answer.status == 200, await answer.text()

        async def active() -> dict[str, Any]:
            async with client.get(manager) as answer:
                return {one["labels"]["alertname"]: one for one in await answer.json()}

        await send(BEGUN)
        begun = await active()
        assert begun.keys() == {"outage.called", "quarantine.set", "node.boot-slow"}
        assert begun["outage.called"]["labels"]["severity"] == "error"
        ends = datetime.datetime.fromisoformat(begun["outage.called"]["endsAt"])
        assert ends.timestamp() > time.time() + 86400, "it is not over by itself"
        await send(OVER)
        async with asyncio.timeout(60):
            while (await active()).keys() != {"node.boot-slow"}:
                await asyncio.sleep(0.05)
        await send([*BEGUN[:1], *OVER[:1]])
        assert (await active()).keys() == {"node.boot-slow"}, "begun and over at once"
