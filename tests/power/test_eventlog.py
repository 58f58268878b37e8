"""BMCs' event logs: what is new is told once, over restarts, clears and floods, and reading gives
way to power."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.kraken.events import Severity
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import LogEntry, Unsupported
from powerman.inspect.eventlog import MOST, LogPosition, identity, in_order, news, text_of
from powerman.ipmi.facts import parse_log_mark
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.power.conftest import record
from tests.support.fake_bmc import FakeClock, FakeDriver
from tests.support.site import site


def entry(number: int, severity: str = "warning", text: str = "") -> LogEntry:
    """One of a log."""
    return LogEntry(f"2026-01-01T00:00:{number % 60:02d}", severity, text or f"entry {number}")


ENTRIES = [entry(n) for n in range(10)]


@pytest.mark.parametrize(
    ("entries", "known", "count", "new"),
    [
        (ENTRIES, None, 10, []),
        (ENTRIES, LogPosition(8), 10, ENTRIES[8:]),
        (ENTRIES[4:], LogPosition(8), 10, ENTRIES[8:]),  # some cannot be read
        (ENTRIES, LogPosition(8, "", identity(ENTRIES[7])), 10, ENTRIES[8:]),
        (ENTRIES, LogPosition(10, "", identity(ENTRIES[9])), 10, []),
        (
            ENTRIES[5:],
            LogPosition(10, "", identity(ENTRIES[6])),
            10,
            ENTRIES[7:],
        ),  # full: the oldest went
        (ENTRIES[:2], LogPosition(50, "", identity(entry(77))), 2, ENTRIES[:2]),  # cleared
        (ENTRIES[:2], LogPosition(50), 2, ENTRIES[:2]),
        ([], LogPosition(50), 0, []),
    ],
)
def test_what_is_new(
    entries: list[LogEntry], known: LogPosition | None, count: int, new: list[LogEntry]
) -> None:
    assert news(entries, known, count) == new


def test_the_newest_first_is_turned_round() -> None:
    assert in_order(ENTRIES[::-1]) == ENTRIES == in_order(ENTRIES) and in_order([]) == []


def test_texts_are_harmless() -> None:
    assert text_of(LogEntry("\x1b[2J", "ok", "fan\x1b]0;x\x07\nfail" + "y" * 500)).isprintable()
    assert text_of(LogEntry("", "ok", "")) == "an entry without a text"


@pytest.mark.parametrize(
    ("info", "count"), [(bytes.fromhex("51 0300 ff0f 01020304 05060708 02"), 3), (b"\x51", None)]
)
def test_the_information_of_an_event_log(info: bytes, count: int | None) -> None:
    found = parse_log_mark(info)
    assert (found.count if found else None) == count


@contextlib.asynccontextmanager
async def running(
    directory: Path, driver: FakeDriver
) -> AsyncIterator[tuple[PowerService, FakeLink]]:
    """A service over one BMC that has answered."""
    link, clock = FakeLink(), driver.clock
    assert isinstance(clock, FakeClock)
    service = PowerService(lambda spec, shared: driver, clock, polls=False)
    await service.start(link, site(data_dir=str(directory)), PowerSettings(events_s=60.0))
    try:
        await service.node_changed("n1", record())
        await service.call("power.refresh", {"node": "n1"})
        yield service, link
    finally:
        await service.stop()


async def look(service: PowerService, driver: FakeDriver) -> None:
    """A period passes."""
    assert isinstance(driver.clock, FakeClock)
    driver.clock.time += 61.0
    await service.logs.look_due()


def told(link: FakeLink) -> list[tuple[str, str]]:
    """(severity, text) of what was told."""
    return [
        (str(severity), text.partition(" (at")[0])
        for _, kind, text, severity, _ in link.events
        if kind == "power.bmc-log"
    ]


@pytest.mark.parametrize("marks", [True, False], ids=["asked cheaply", "read each time"])
async def test_each_entry_is_told_once_over_a_restart(tmp_path: Path, marks: bool) -> None:
    driver = FakeDriver(FakeClock(), marks=marks)
    async with running(tmp_path, driver) as (service, link):
        await look(service, driver)
        assert told(link) == [] and driver.calls.count("event_log") == (0 if marks else 1)
        driver.log += [
            entry(1, "critical", "Power Supply 2: lost"),
            entry(2, "ok", "Power Supply 2: back"),
        ]
        await look(service, driver)
        await look(service, driver)
        assert told(link) == [
            (str(Severity.ERROR), "Power Supply 2: lost"),
            (str(Severity.INFO), "Power Supply 2: back"),
        ]
    driver.log.append(entry(3, "warning", "Fan 3: slow"))
    async with running(tmp_path, driver) as (service, link):
        await look(service, driver)
        await look(service, driver)
        assert told(link) == [(str(Severity.WARNING), "Fan 3: slow")]


async def test_a_flood_is_cut(tmp_path: Path) -> None:
    driver = FakeDriver(FakeClock())
    async with running(tmp_path, driver) as (service, link):
        await look(service, driver)
        driver.log += [entry(n, text=f"again {n}") for n in range(1000)]
        await look(service, driver)
        texts = [text for _, text in told(link)]
        assert (
            len(texts) == MOST + 1
            and texts[0].startswith("980 entries")
            and texts[-1] == "again 999"
        )


@pytest.mark.parametrize("said", ["", "[1, 2]", '{"n1": 7, "n2": [1], "n3": ["x", 1, 2]}', "{"])
async def test_notes_that_cannot_be_read_are_no_trouble(tmp_path: Path, said: str) -> None:
    (tmp_path / "bmc-logs.json").write_text(said)
    driver = FakeDriver(FakeClock())
    async with running(tmp_path, driver) as (service, link):
        await look(service, driver)
        driver.log.append(entry(1))
        await look(service, driver)
        assert len(told(link)) == 1


async def test_a_bmc_without_a_log_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, asked = FakeDriver(FakeClock()), []

    async def none(self: FakeDriver) -> None:
        asked.append(1)
        raise Unsupported("none")

    monkeypatch.setattr(FakeDriver, "log_mark", none)
    async with running(tmp_path, driver) as (service, link):
        await look(service, driver)
        await look(service, driver)
        assert len(asked) == 1 and told(link) == []


async def test_reading_gives_way_to_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, reading = FakeDriver(FakeClock(), marks=False), asyncio.Event()

    async def slow(self: FakeDriver) -> list[LogEntry]:
        reading.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(FakeDriver, "event_log", slow)
    async with running(tmp_path, driver) as (service, _link):
        looking = asyncio.create_task(look(service, driver))
        await reading.wait()
        assert await service.mutate(MutationRequest(1, "n1", "power-on", 1, 20.0, {})) == {
            "power": "ON"
        }
        await looking
