"""What the tutorial shows of a rack is what these commands print on one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from docs.outputs import blocks, masks
from tests.vm.conftest import Site

pytestmark = pytest.mark.vm
PAGE = Path(__file__).resolve().parents[2] / "docs/tutorial/first-rack.md"
PLACE = "rack"
ABSENT = ("n2 ", "n3 ")
"""Lines of the tutorial's four nodes that this rack of two does not have."""
OTHERWISE = (
    ("4: 4 converged", "2: 2 converged"),
    ("debian-2", "plain-1"),
    ("n[1-3]", "n1"),
    ("n[0,2]", "n[10,12]"),
    ("n[1,3] ", "n[11,13] "),
    ("n[0-3]: new", "n[10-13]: new"),
)
"""What the tutorial's rack is otherwise: how many nodes it has, which image they run, and what new
nodes are called."""


def here(line: str) -> str:
    """What the tutorial says, as it is of this rack."""
    for there, ours in OTHERWISE:
        line = line.replace(there, ours)
    return line


def planned(site: Site) -> str:
    """The inventory of this rack with four new nodes, as those of the tutorial are when it plans
    them."""
    data = yaml.safe_load(site.rack.inventory(images=["debian-1"]))
    known = yaml.safe_load(site.inventory())
    for number in range(4):
        new = dict(data["nodes"][f"n{number % 2}"])
        new["bmc"] = {
            **new["bmc"],
            "address": str(new["bmc"]["address"]).replace(".1.1", f".1.2{number}"),
        }
        known["nodes"][f"n1{number}"] = {
            **new,
            "mac": f"52:54:00:99:01:0{number}",
            "ip": f"10.99.0.20{number}",
            "images": ["debian-1"],
        }
    return str(yaml.safe_dump(known))


def test_the_tutorial_shows_what_is_printed(site: Site) -> None:
    site.told("n0", "n1")
    steps = [step for step in blocks.steps(PAGE.read_text()) if step.place == PLACE]
    assert len(steps) > 3
    file = site.directory / "rack.yaml"
    file.write_text(planned(site))
    wrong = []
    for step in steps:
        shown = [here(line) for line in step.shown if not line.startswith(ABSENT)]
        words = [
            str(file) if word.endswith("/rack.yaml") else word
            for word in shlex.split(here(step.command))[1:]
        ]
        done = site.head.cli(*words, check=False)
        output = (done.stdout + done.stderr).splitlines()
        if found := masks.difference(shown, output):
            wrong.append(f"{step.command}\n{found}\n" + "\n".join(output))
    assert not wrong, "\n\n".join(wrong)
