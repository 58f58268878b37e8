"""The order in which the link works off what it has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import Unreachable
from layercake.kraken.events import MUTATION_FAILED
from minos.agent.head_link import connection, link
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.state import Config
from minos.tpm import proof
from minos.tpm.device import Device

NODE = "7f0c6b0e-0000-4000-8000-000000000001"
CONFIG = Config(
    NODE, "n0", "", "https://192.0.2.1", "", "", Path("ca.pem"), Path("run"), "boot", "1"
)


def test_events_are_handed_in_before_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "to_head", lambda config, session: None)
    found = link.HeadLink(
        CONFIG, None, KnownHeads(CONFIG), lambda message: None, now=lambda: 0.0, jitter=lambda: 0.0
    )
    said: list[str] = []
    monkeypatch.setattr(found, "_call", lambda method, path, body=None: said.append(path))
    found.answer(1, {"ok": True})
    found.report_event(MUTATION_FAILED, "it broke")
    found.work()
    assert said == ["/node/v1/events", "/node/v1/answers/1"]


class Over(Exception):
    """Ends the thread's loop."""


def test_after_a_word_of_the_head_the_pauses_begin_anew_even_if_the_next_attempt_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "to_head", lambda config, session: None)
    pauses: list[float] = []
    attempts = 0

    class Watched(threading.Condition):
        """Notes for how long it is waited, and does not wait."""

        def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
            if len(pauses) == 11:
                raise Over
            assert timeout is not None
            pauses.append(timeout)
            return predicate()

    with monkeypatch.context() as made:
        made.setattr(threading, "Condition", Watched)
        found = link.HeadLink(
            CONFIG,
            None,
            KnownHeads(CONFIG),
            lambda message: None,
            now=lambda: 0.0,
            jitter=lambda: 0.5,
        )

    def join() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 9:
            found.pull()  # the head speaks by datagrams while its TLS does not listen yet
        raise Unreachable("nobody listens")

    monkeypatch.setattr(found, "join", join)
    with pytest.raises(Over):
        found.run()
    assert pauses[:9] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert pauses[9:] == [0.25, 0.5], "not ten seconds more for what was said before"


def test_the_tpm_is_shown_when_the_head_asks_for_it_and_the_pass_goes_with_the_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "to_head", lambda config, session: None)
    found = link.HeadLink(
        CONFIG, None, KnownHeads(CONFIG), lambda message: None, now=lambda: 0.0, jitter=lambda: 0.0
    )
    said: list[tuple[str, dict[str, Any]]] = []

    def call(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        said.append((path, body))
        if "pass" in body:
            raise Over
        return {"pass": "word"} if path.endswith("attest") else {"attest": {}}

    def none() -> Device:
        return Device(Path("/nonexistent"))

    monkeypatch.setattr(found, "_call", call)
    monkeypatch.setattr(proof, "prove", partial(proof.prove, transport=none))
    with pytest.raises(Over):
        found.join()
    assert [path for path, _ in said] == ["/node/v1/join", "/node/v1/attest", "/node/v1/join"]
    assert (
        said[0][1]["tpm"] is True
        and "has none" in said[1][1]["tpm"]["missing"]
        and said[2][1]["pass"] == "word"
    )
    assert all(body["token"] == CONFIG.token for _, body in said)
