"""What an agent keeps: its session and its events."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from layercake.head.modules import standard
from layercake.kraken.errors import DeclarationError, OperationFailed
from layercake.kraken.events import MUTATION_FAILED, Severity
from layercake.kraken.variables import Layout
from minos.agent.head_link.outbox import KEEP, Outbox
from minos.agent.state import Config, SessionFile, parse_endpoint, parse_join


def config(run: Path, **changes: Any) -> Config:
    base: dict[str, Any] = {
        "node": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "name": "n1",
        "mac": "",
        "head": "https://h",
        "sync": "",
        "token": "tok",
        "authority": run,
        "run": run,
        "boot_id": "b1",
        "version": "1",
    }
    return Config(**(base | changes))


ANSWER = {
    "session": 7,
    "key": base64.b64encode(b"k" * 32).decode(),
    "epoch": 3,
    "layout": Layout(standard().variables).to_wire(),
    "hello_s": 10,
    "dead_s": 40,
    "sync": "10.0.0.1:31415",
    "desired": {},
    "mutations": json.loads(json.dumps([m.to_wire() for m in standard().mutations])),
    "traits": {"arch": "x86_64"},
}


def test_a_session_is_read_back_only_by_the_same_boot_and_token(tmp_path: Path) -> None:
    file, session = SessionFile(tmp_path), parse_join(ANSWER)
    assert file.load(config(tmp_path)) is None
    file.save(config(tmp_path), session)
    found = file.load(config(tmp_path))
    assert found and (found.number, found.key, found.epoch, found.sync) == (
        7,
        b"k" * 32,
        3,
        ("10.0.0.1", 31415),
    )
    assert found.layout.digest == session.layout.digest
    assert found.mutations == session.mutations == standard().mutations and found.traits == {
        "arch": "x86_64"
    }
    for change in (
        {"boot_id": "b2"},
        {"token": "other"},
        {"node": "1f8fad5b-d9cb-469f-a165-70867728950e"},
    ):
        assert file.load(config(tmp_path, **change)) is None
    assert (tmp_path / "session.json").stat().st_mode & 0o777 == 0o600
    assert '"tok"' not in (tmp_path / "session.json").read_text()
    assert "kkkk" not in repr(session)


def test_a_torn_session_is_none(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"node": "0f8f')
    assert SessionFile(tmp_path).load(config(tmp_path)) is None


@pytest.mark.parametrize(
    "missing", ["session", "key", "epoch", "layout", "hello_s", "sync", "traits"]
)
def test_an_answer_that_is_not_as_agreed_is_an_error(missing: str) -> None:
    with pytest.raises(OperationFailed, match="not as agreed"):
        parse_join({k: v for k, v in ANSWER.items() if k != missing})


def test_a_head_that_sends_no_table_is_older() -> None:
    with pytest.raises(OperationFailed, match="the head is older than this minOS") as caught:
        parse_join({k: v for k, v in ANSWER.items() if k != "mutations"})
    assert "upgrade the head" in caught.value.hint


def test_a_table_that_is_not_well_formed_is_refused() -> None:
    with pytest.raises(DeclarationError, match="not well-formed"):
        parse_join({**ANSWER, "mutations": [{"name": "x"}]})


def test_endpoints() -> None:
    assert parse_endpoint("[fd99::1]:31415") == ("fd99::1", 31415)
    for text in ("", "host", "host:0", "host:x", ":1"):
        with pytest.raises(OperationFailed):
            parse_endpoint(text)


def test_requests_are_not_kept_with_the_desired_state(tmp_path: Path) -> None:
    file = SessionFile(tmp_path)
    assert file.load_desired() is None
    file.save_desired({"revision": 4, "images": [], "requests": [{"id": 1}]})
    assert file.load_desired() == {"revision": 4, "images": [], "requests": []}


def test_events_are_bounded_and_the_loss_is_told() -> None:
    woken: list[int] = []
    events = Outbox(lambda: woken.append(1), lambda: 5.0)
    for number in range(KEEP + 20):
        events.add(MUTATION_FAILED, f"event {number}", Severity.INFO, {"number": number})
    assert len(events) == KEEP and len(woken) == KEEP + 20
    batch = events.next_batch()
    assert (
        batch[0]["text"].startswith("20 earlier events were dropped")
        and batch[0]["kind"] == "service.events-dropped"
    )
    assert batch[1]["data"] == {"number": 20} and batch[1]["severity"] == "info"
    events.put_back(batch)
    assert events.next_batch()[1]["data"] == {"number": 20}
    assert len(Outbox(lambda: None, lambda: 0.0).next_batch()) == 0


def test_events_are_cut_to_size() -> None:
    events = Outbox(lambda: None, lambda: 0.0)
    events.add(MUTATION_FAILED, "y" * 100_000, None, {})
    event = events.next_batch()[0]
    assert len(event["text"]) == 4000 and (event["kind"], event["severity"]) == (
        "mutation.failed",
        "warning",
    )
