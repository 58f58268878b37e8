"""The page says node sets as the command line does."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from layercake import dashboard
from layercake.inventory.ranges import fold

WORDS = Path(dashboard.__file__).parent / "web/words.js"
SCRIPT = """
import { fold } from "%s";
import { readFileSync } from "node:fs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(fold)));
"""


def node_sets(count: int) -> list[list[str]]:
    """Names with one number and with two, padded and not, some alike."""
    chance = random.Random(7)
    forms = (
        "n{0}",
        "n{0:02d}",
        "r{1}n{0}",
        "rack{1:02d}-n{0:03d}",
        "head",
        "x{0}y",
        "s12345678901",
    )
    return [
        [
            chance.choice(forms).format(chance.randrange(14), chance.randrange(95, 103))
            for _ in range(chance.randrange(1, 50))
        ]
        for _ in range(count)
    ]


def test_the_page_folds_as_the_command_line() -> None:
    sets = node_sets(400)
    argv = ["node", "--input-type=module", "-e", SCRIPT % WORDS.as_uri()]
    done = subprocess.run(argv, input=json.dumps(sets), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [fold(names) for names in sets]
