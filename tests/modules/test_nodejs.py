"""The example in Node.js: a module in another language finds out, mutates, answers and tells, under
a real head."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from layercake.modules.declared import SiteModule
from tests.modules.conftest import Open

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/modules/thermal-node"

pytestmark = pytest.mark.root


def test_the_example_discovers_and_mutates(site_with: Open) -> None:
    assert (EXAMPLE / "node_modules").exists(), "run `make install`"
    node = shutil.which("node")
    assert node is not None
    warmth = SiteModule(
        command=[node, str(EXAMPLE / "main.js")],
        declares=str(EXAMPLE / "module.yaml"),
        settings={"room_c": 21},
    )
    with site_with({"warmth": warmth}) as site:
        assert site.states()["h0"]["state"]["warmth"] == "NORMAL"
        done = [e["data"]["mutation"] for e in site.history("h0", "mutation.done")]
        assert [m for m in done if m.startswith("warmth")] == ["warmth-discover", "warmth-cool"]
        changes = [
            e["data"]["warmth"]
            for e in site.history("h0", "state.changed")
            if "warmth" in e["data"]
        ]
        assert changes == [["UNKNOWN", "HIGH"], ["HIGH", "NORMAL"]]
        (cooled,) = site.history("h0", "warmth.")
        assert (cooled["kind"], cooled["severity"], cooled["text"]) == (
            "warmth.cooled",
            "info",
            "h0 is at 21 degrees again",
        )
        (answer,) = site.api("POST", "/v1/calls/warmth.read", {"range": "h0"})["answers"]
        assert answer["answer"] == {"celsius": 21, "fans": 100}
        (status,) = [s for s in site.api("GET", "/v1/status")["services"] if s["name"] == "warmth"]
        assert (status["state"], status["restarts"]) == ("running", 0)
