"""The table that `make bench` ends with: our figures, the peers' beside them, and the last ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.bench.__main__ import BRIEF, PEERS, RECORDED, figures, names, peers_of, table

ROOT = Path(__file__).resolve().parents[2]
HERE = {"calibration_s": 0.182, "cores": 2}


def test_a_line_has_ours_the_peers_and_what_was_recorded() -> None:
    found = {"dhcp": {"per_s": 5000.0, "kea_per_s": 2500.0, "dnsmasq_per_s": 200.0, "lost": 0.0}}
    before = {"figures": {"dhcp": {"per_s": 4000.0, "kea_per_s": 2000.0}}, "machine": {"cores": 4}}
    text = table(found, before, HERE)
    (line,) = [line for line in text.splitlines() if " per_s" in line]
    assert re.split(r"\s{2,}", line) == [
        "dhcp",
        "per_s",
        "5000",
        "kea 2500, dnsmasq 200",
        "4000",
        "+25 %",
    ]
    assert "kea_per_s" not in text, "it stands beside ours"
    assert re.search(r"^dhcp +lost +0$", text, re.M), "what was never recorded has no column"
    assert text.endswith("now: calibration_s 0.182, cores 2\nrecorded: cores 4")


def test_only_numbers_are_figures() -> None:
    last = {"per_s": 3, "batch": "10%", "told": True, "rounds": [1], "ratio": 0.5}
    assert figures(last) == {"per_s": 3.0, "ratio": 0.5}


def test_what_was_recorded_is_of_benchmarks_that_there_are() -> None:
    recorded = json.loads(RECORDED.read_text())
    assert set(recorded["figures"]) <= set(names()) and recorded["machine"]["calibration_s"]
    assert peers_of("per_s", recorded["figures"]["dhcp"]).keys() <= set(PEERS)
    for name, found in recorded["figures"].items():
        assert all(isinstance(value, float) for value in found.values()), name


def test_make_bench_ends_with_it() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nbench: fetch\n")[1].split("\n\n")[0]
    assert recipe.strip() == "$(PY) -m tests.bench"


def test_the_longest_have_the_options_that_they_are_run_with() -> None:
    assert BRIEF
    for name, words in BRIEF.items():
        text = (ROOT / "tests" / "bench" / f"{name}.py").read_text()
        options = [word for word in words if word.startswith("--")]
        assert options and all(f'add_argument("{option}"' in text for option in options), name
