"""What the tutorial shows of a rack is what these commands print on one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from docs.outputs import blocks, masks
from tests.vm.conftest import Site

pytestmark = pytest.mark.vm
PAGE = Path(__file__).resolve().parents[2] / "docs/tutorial/first-rack.md"
PLACE = "rack"
ABSENT = ("n2 ", "n3 ")
"""Lines of the tutorial's four nodes that this rack of two does not have."""
OTHERWISE = (("4: 4 converged", "2: 2 converged"), ("debian-2", "plain-1"), ("n[1-3]", "n1"))
"""What the tutorial's rack is otherwise: how many nodes it has, and which image they run. (n0 of this one has disks, too.)"""


def here(line: str) -> str:
    """What the tutorial says, as it is of this rack."""
    for there, ours in OTHERWISE:
        line = line.replace(there, ours)
    return line


def test_the_tutorial_shows_what_is_printed(site: Site) -> None:
    site.told("n0", "n1")
    steps = [step for step in blocks.steps(PAGE.read_text()) if step.place == PLACE]
    assert len(steps) > 3
    wrong = []
    for step in steps:
        shown = [here(line) for line in step.shown if not line.startswith(ABSENT)]
        done = site.head.cli(*shlex.split(here(step.command))[1:], check=False)
        output = (done.stdout + done.stderr).splitlines()
        if found := masks.difference(shown, output):
            wrong.append(f"{step.command}\n{found}\n" + "\n".join(output))
    assert not wrong, "\n\n".join(wrong)
