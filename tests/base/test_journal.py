"""What is logged goes to the journal as fields, by its own protocol; without a journal, to standard
error."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.base.logs.journal import FIELDS, Journal, encoded, is_journal
from layercake.base.logs.lines import AT_ONCE, Repeats
from layercake.fleet.store import Event
from layercake.main import events_to_log


def parsed(data: bytes) -> dict[str, str]:
    """A datagram as the journal reads it, by the protocol's own description."""
    found = {}
    while data:
        line, _, rest = data.partition(b"\n")
        key, equals, value = line.partition(b"=")
        if equals:
            found[key.decode()], data = value.decode(), rest
        else:
            size = int.from_bytes(rest[:8], "little")
            assert rest[8 + size : 9 + size] == b"\n"
            found[line.decode()], data = rest[8 : 8 + size].decode(), rest[9 + size :]
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "socket"))
        found.settimeout(10)
        yield found


@contextlib.contextmanager
def logger(tmp_path: Path, name: str, otherwise: logging.Handler) -> Iterator[logging.Logger]:
    """A logger that speaks to the journal, behind the filter of all logs."""
    handler, found = (
        Journal("layercake", otherwise, str(tmp_path / "socket")),
        logging.getLogger(name),
    )
    handler.addFilter(Repeats(handler.emit, lambda seconds, what: None))
    found.addHandler(handler)
    found.propagate = False
    try:
        yield found
    finally:
        found.propagate = True
        found.removeHandler(handler)
        handler.close()


def test_fields_and_values_of_several_lines(tmp_path: Path, journal: socket.socket) -> None:
    with logger(tmp_path, "layercake.test", logging.NullHandler()) as log:
        try:
            raise ValueError("a\nb")
        except ValueError:
            log.exception("it failed: %s", "so")
    found = parsed(journal.recv(1 << 16))
    assert found["MESSAGE"].startswith("it failed: so\nTraceback") and found["MESSAGE"].endswith(
        "ValueError: a\nb"
    )
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["LOGGER"]) == (
        "3",
        "layercake",
        "layercake.test",
    )
    assert found["CODE_FILE"].endswith("test_journal.py")
    assert parsed(encoded({"A": "1=2", "B": "x\nINJECTED=1", "C": ""})) == {
        "A": "1=2",
        "B": "x\nINJECTED=1",
        "C": "",
    }


def test_events_have_their_node_and_kind_and_a_flood_is_counted(
    tmp_path: Path, journal: socket.socket
) -> None:
    events = [
        Event(1, 0.0, "n1", "power.state", "info", "not grave"),
        Event(2, 0.0, "", "service.unwell", "warning", "its own"),
        *(
            Event(number, 0.0, "n1", "outage.called", "error", "dark\nLAYERCAKE_NODE=n9")
            for number in range(AT_ONCE + 5)
        ),
        Event(99, 0.0, "", "service.unwell", "warning", "again"),
    ]
    tell, found = events_to_log("warning"), []
    journal.setblocking(False)
    with logger(tmp_path, "layercake.events", logging.NullHandler()):
        for event in events:
            tell(event)
            with contextlib.suppress(BlockingIOError):  # the queue of a socket is short
                found.append(parsed(journal.recv(1 << 16)))
    assert len(found) == AT_ONCE + 2
    assert found[0]["MESSAGE"] == "head service.unwell: its own" and found[0]["PRIORITY"] == "4"
    assert (
        found[1]["LAYERCAKE_NODE"] == "n1"
        and found[1]["LAYERCAKE_KIND"] == "outage.called"
        and found[1]["PRIORITY"] == "3"
    )
    assert (
        "\n" not in found[1]["MESSAGE"]
        and found[-1]["LAYERCAKE_EVENT"] == "99"
        and found[-1]["LAYERCAKE_NODE"] == ""
    )


def test_without_a_journal_it_is_said_elsewhere(tmp_path: Path) -> None:
    said: list[str] = []
    otherwise = logging.Handler()
    otherwise.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    with logger(tmp_path, "layercake.test", otherwise) as log:
        log.error("no journal")
    assert said == ["no journal"]


def test_where_standard_error_is_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as stream:
        here = os.fstat(stream.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{here.st_dev}:{here.st_ino}"}, stream)
        assert not is_journal({"JOURNAL_STREAM": f"{here.st_dev}:1"}, stream) and not is_journal(
            {}, stream
        )
    assert not is_journal({"JOURNAL_STREAM": "1:1"}, sys.stderr)
    assert FIELDS == "fields"
