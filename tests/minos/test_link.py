"""The order in which the link works off what it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.kraken.events import MUTATION_FAILED
from minos.agent.bond import link
from minos.agent.state import Config

NODE = "7f0c6b0e-0000-4000-8000-000000000001"
CONFIG = Config(NODE, "n0", "", "https://192.0.2.1", "", "", Path("ca.pem"), Path("run"), "boot", "1")


def test_events_are_handed_in_before_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "to_head", lambda config, session: None)
    found = link.Link(CONFIG, None, lambda message: None, now=lambda: 0.0, jitter=lambda: 0.0)
    said: list[str] = []
    monkeypatch.setattr(found, "_call", lambda method, path, body=None: said.append(path))
    found.answer(1, {"ok": True})
    found.tell(MUTATION_FAILED, "it broke")
    found._work()
    assert said == ["/node/v1/events", "/node/v1/answers/1"]
