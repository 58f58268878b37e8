"""No acknowledged change is lost and no refused one carried out, however often the head is killed;
`tests.bench.kills` does it 300 times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("LAYERCAKE_TEST_KILLS", "10"))


@pytest.mark.root
def test_a_head_that_is_killed_loses_and_invents_nothing() -> None:
    """A process of its own: it forks its heads, and must have no threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.kills", "--kills", str(KILLS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + 5 * KILLS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["faults"], told["kills"] > KILLS, told["acknowledged"] > 0) == (0, True, True)
