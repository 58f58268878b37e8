"""Logs by OTLP, parsed by the published schema; a collector that hangs or refuses is in nobody's
way."""

from __future__ import annotations

import json
import logging
import time

import pytest
from patience import patience

from layercake.api.caller import Caller
from layercake.base.logs.lines import AT_ONCE, AUDIT
from layercake.base.secrets import Vault
from layercake.features.access.audit import Audit
from layercake.features.logs import entry, sender
from layercake.features.logs.entry import Entry, Waiting, plain
from layercake.features.logs.settings import OF_LOGS, to
from layercake.features.logs.sources import Pieces
from layercake.moduleapi.fields import Mistake, secret_name
from layercake.moduleapi.module import Role
from tests.logs.conftest import Sending
from tests.support.collectors import Otlp, until
from tests.support.world import World

log = logging.getLogger("layercake.tests")
SECRET = "Bearer a-canary-for-the-collector"


async def test_it_is_otlp(world: World, sending: Sending, otlp: tuple[Otlp, str]) -> None:
    found, where = otlp
    place = world.directory / "hooks/logs"
    place.mkdir(parents=True)
    (place / "key").write_text(SECRET)
    (place / "key").chmod(0o600)
    world.head.vault = Vault(world.directory / "hooks", {})
    async with sending(to=where, authorization="key", level="warning"):
        log.info("not grave enough")
        log.warning("a warning")
        await until(lambda: [r for r in found.records if r["text"] == "a warning"])
    [record] = [r for r in found.records if r["text"] == "a warning"]
    assert (record["service.name"], record["severity"], record["layercake.logger"]) == (
        "layercake",
        "WARN",
        "layercake.tests",
    )
    assert abs(record["at"] - time.time()) < 120
    assert not [r for r in found.records if r["text"] == "not grave enough"]
    assert {headers["Authorization"] for headers in found.headers} == {SECRET}
    assert SECRET.split()[1] not in str([e.text for e in world.head.store.events])


async def test_it_is_sent_again_until_it_is_taken_and_told_once(
    world: World, sending: Sending, otlp: tuple[Otlp, str]
) -> None:
    found, where = otlp
    found.answers = [503, 429, 500, 401]
    async with sending(to=where):
        log.info("one")
        await until(lambda: [r for r in found.records if r["text"] == "one"])
    assert found.asked >= 5
    assert [k for k in world.kinds("") if k.startswith("logs.")] == ["logs.failed", "logs.well"]


async def test_what_it_will_never_take_is_left_out(
    world: World, sending: Sending, otlp: tuple[Otlp, str]
) -> None:
    found, where = otlp
    found.answers = [400]
    async with sending(to=where):
        log.info("poison")
        await until(lambda: "logs.failed" in world.kinds(""))
        log.info("after it")
        await until(lambda: [r for r in found.records if r["text"] == "after it"])
        await until(lambda: "logs.well" in world.kinds(""))
    assert not [r for r in found.records if r["text"] == "poison"]
    assert "left out" in next(e.text for e in world.events_of("") if e.kind == "logs.well")


async def test_one_that_hangs_costs_a_bounded_queue_and_nobody_waits(
    world: World, sending: Sending, otlp: tuple[Otlp, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "MOST", 50)
    monkeypatch.setattr(sender, "ANSWER_S", 0.2)
    found, where = otlp
    found.hangs.clear()
    async with sending(to=where) as logs:
        log.info("first")
        await until(lambda: found.asked > 0)
        began = time.monotonic()
        for number in range(500):
            log.handle(
                logging.LogRecord(
                    log.name, logging.INFO, f"file{number}", number, f"line {number}", (), None
                )
            )
        assert time.monotonic() - began < patience(5)
        assert len(logs.senders[0].waiting) <= 50
        found.hangs.set()
        await until(lambda: [r for r in found.records if r["text"] == "line 499"])
    assert [
        r
        for r in found.records
        if r["text"].endswith("lines left out here, as they could not be sent")
    ]


def test_lines_that_wait_are_bounded_by_bytes_too() -> None:
    waiting = Waiting()
    for number in range(4000):
        waiting.add(Entry(0.0, 6, f"{number} " + "x" * 8000))
    kept = len(waiting)
    taken, left_out = waiting.next_batch(10_000)
    assert left_out == 4000 - kept and kept * 8000 <= entry.MOST_BYTES
    assert sum(len(one.text) for one in taken) < entry.BATCH_BYTES + 9000
    while len(waiting):
        more, none = waiting.next_batch(10_000)
        taken += more
        assert none == 0
    assert len(taken) == kept
    assert taken[-1].text.startswith("3999 ")


def test_lines_out_of_pieces() -> None:
    pieces = Pieces()
    assert pieces.add("a\u00e4".encode()[:2]) == [] and pieces.add(
        "\u00e4".encode()[1:] + b"b\r\n\nc"
    ) == ["a\u00e4b"]
    assert pieces.add(b"\x1b]0;owned\x07\n") == ["c\ufffd]0;owned\ufffd"]
    [long] = pieces.add(b"y" * 9000)
    assert long == plain("y" * 9000) and len(long) < 8200


@pytest.mark.parametrize(
    "address",
    [
        "udp://log.example",
        "tcp://10.0.0.1:5514",
        "tls://log.example:6514",
        "https://otel.example:4318/v1/logs",
        "http://127.0.0.1:4318/v1/logs",
        "http://[::1]:4318/v1/logs",
    ],
)
def test_addresses_that_are_taken(address: str) -> None:
    assert to(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "log.example",
        "http://otel.example/v1/logs",
        "https://user:pw@otel.example",
        "ftp://x",
        "tls://",
        "udp://h/path",
        "tcp://h:99999",
        "https://h/a b",
    ],
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(Mistake):
        to(address)


def test_a_secret_is_a_name() -> None:
    assert secret_name(OF_LOGS)("key") == "key"
    with pytest.raises(Mistake):
        secret_name(OF_LOGS)("../../etc/shadow")


class Heard(logging.Handler):
    """What the log of the head is told, and by whom."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


async def test_audit_records_are_sent_to_who_asks_for_them(
    world: World, sending: Sending, otlp: tuple[Otlp, str]
) -> None:
    found, where = otlp
    others = Heard()
    logging.getLogger().addHandler(others)
    audit = world.head.part(Audit)
    ann = Caller("ann", "token", Role.ADMIN)
    async with sending(to=where, audit=True):
        for number in range(AT_ONCE + 5):
            await audit.begin(ann, f"POST /v1/x/{number}", {"name": "x"})
        last = await audit.begin(ann, "POST /v1/big", {"names": ["\x1b" * 199] * 50})
        audit.end(last, 403, "cannot: no")
        await until(lambda: [r for r in found.records if "cannot: no" in r["text"]])
    records = [json.loads(r["text"]) for r in found.records if r.get("layercake.source") == "audit"]
    assert len(records) == AT_ONCE + 7, "each of them"
    assert records[0]["by"] == "ann" and records[0]["asked"] == {"name": "x"}
    assert "sha256" in records[-2]["asked"] and records[-2]["request"] == "POST /v1/big"
    assert records[-1] == {"id": last, "site": "", "status": 403, "error": "cannot: no"}
    logging.getLogger().removeHandler(others)
    assert not [name for name in others.names if name == AUDIT], "they are in no other log"
    count = len(found.records)
    async with sending(to=where):
        await audit.begin(ann, "POST /v1/y", None)
        log.info("something else")
        await until(lambda: [r for r in found.records[count:] if r["text"] == "something else"])
    assert not [r for r in found.records[count:] if "/v1/y" in r["text"]]
