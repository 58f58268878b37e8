"""The head's log by syslog, read by Debian's rsyslog."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from pathlib import Path

import pytest

from layercake.agents import pki
from layercake.features.logs import sender
from layercake.features.logs.entry import MOST, Entry
from layercake.features.logs.syslog import DATAGRAM, cut, message
from layercake.fleet.events import OUTAGE_CALLED
from layercake.main import events_to_log
from tests.logs.conftest import Sending
from tests.support.collectors import syslog, until
from tests.support.world import World

log = logging.getLogger("layercake.tests")


def established(port: int) -> list[str]:
    """The connections to a port of this machine that our side has open (proc(5)): state 01."""
    return [
        line
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if f"0100007F:{port:04X} 01 " in line
    ]


@pytest.mark.parametrize("kind", ["udp", "tcp", "tls"])
async def test_rsyslog_reads_it(world: World, sending: Sending, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "collector"
    place.mkdir()
    pki.create(place, "127.0.0.1")
    server = syslog(place, kind, place / "pki" if (place / "pki").exists() else place)
    world.head.store.listen(events_to_log("warning"))
    with server.running():
        async with sending(
            to=f"{kind}://127.0.0.1:{server.port}",
            ca=str(next(place.rglob("ca.pem"))) if kind == "tls" else "",
        ):
            log.info("it begins")
            await until(lambda: "it begins" in server.texts)
            world.head.store.event(
                world.node("n0"), OUTAGE_CALLED, 'a "quoted" ] \\ word\n\x1b[31mand a line more'
            )
            log.error("grave")
            await until(lambda: "grave" in server.texts)
    told = {line[6].strip(): line for line in server.lines}
    at, priority, host, app, _, data, _ = told["it begins"]
    assert (priority, host, app) == ("30", socket.gethostname(), "layercake") and at.startswith(
        time.strftime("%Y-")
    )
    assert 'logger="layercake.tests"' in data and told["grave"][1] == "27"
    [outage] = [line for line in server.lines if line[4] == "outage.called"]
    assert (
        'node="n0"' in outage[5] and 'kind="outage.called"' in outage[5] and "\x1b" not in outage[6]
    )
    assert 'a "quoted" ]' in outage[6], "all of it in one message"


async def test_what_could_not_be_sent_waits_and_is_sent(
    world: World, sending: Sending, tmp_path: Path
) -> None:
    place = tmp_path / "collector"
    place.mkdir()
    server = syslog(place, "tcp")
    async with sending(to=f"tcp://127.0.0.1:{server.port}"):
        log.warning("before it was there")
        await until(lambda: "logs.failed" in world.kinds(""))
        with server.running():
            await until(lambda: "before it was there" in server.texts)
            await until(lambda: "logs.well" in world.kinds(""))
        log.warning("while it was away")
        with server.running():
            log.warning("after it came back")
            await until(lambda: "after it came back" in server.texts)
    assert server.texts.index("while it was away") < server.texts.index("after it came back")
    assert world.kinds("").count("logs.failed") <= 2


async def test_a_server_that_reads_nothing_costs_one_connection(
    world: World, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "ANSWER_S", 0.3)
    opened = 0

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await over.wait()
        writer.close()

    over = asyncio.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server = await asyncio.start_server(deaf, sock=listening, limit=1024)
    port = listening.getsockname()[1]
    async with sending(to=f"tcp://127.0.0.1:{port}") as logs:
        for number in range(1000):
            log.handle(
                logging.LogRecord(
                    log.name, logging.INFO, f"file{number}", number, "z" * 8000, (), None
                )
            )
        await until(lambda: opened >= 4)
        assert len(established(port)) <= 2, "one that is given up is closed"
        assert len(logs.senders[0].waiting) <= MOST
    over.set()
    server.close()


async def test_a_certificate_of_another_is_refused(
    world: World, sending: Sending, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        pki.create(tmp_path / name, "127.0.0.1")
    server = syslog(tmp_path / "one", "tls", next((tmp_path / "one").rglob("ca.pem")).parent)
    with server.running():
        async with sending(
            to=f"tls://127.0.0.1:{server.port}", ca=str(next((tmp_path / "other").rglob("ca.pem")))
        ):
            log.info("for nobody else")
            await until(lambda: "logs.failed" in world.kinds(""))
            [failed] = [e.text for e in world.events_of("") if e.kind == "logs.failed"]
            assert "its certificate is not good" in failed
    assert "for nobody else" not in server.texts


def test_words_of_strangers_break_nothing() -> None:
    data = message(
        Entry(
            0.5, 6, "text", app="an app] \n", host="h\u00f6st name", fields={"no de": 'a"b\\c]d\ne'}
        ),
        "head",
    ).decode()
    assert (
        data == "<30>1 1970-01-01T00:00:00.500000Z h_st_name an_app]__ - - [layercake@32473 "
        'no_de="a\\"b\\\\c\\]d e"] text'
    )


def test_a_datagram_is_cut_between_characters() -> None:
    data = cut(message(Entry(0.0, 6, "\u00e4" * DATAGRAM), "head"))
    assert len(data) <= DATAGRAM and data.decode().endswith("\u00e4")
