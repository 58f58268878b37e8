"""What the hot paths cost in counts, beside what was recorded: `python -m tests.costs [--record]`.

As root, on Debian 12, for the counts are those of its Python. --record writes recorded.json anew:
in a commit of its own, and never in the one that moves a figure. Ends with 1 if a figure has moved.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.costs.comparison import RECORDED, Figures, moved, read, written
from tests.costs.counting import ROOT

LIMIT_S = 600.0


def run(*options: str) -> dict[str, dict[str, Figures]]:
    """The figures of all paths, out of a worker. Raises SystemExit, with its last words."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.costs.worker", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"cannot measure: {done.stderr[-3000:]}")
    return read(done.stdout)


def table(found: dict[str, Figures]) -> str:
    """A line for each path."""
    metrics = sorted({metric for figures in found.values() for metric in figures.totals})
    lines = [f"{'path':<10} {'for each':<9}" + "".join(f"{metric:>13}" for metric in metrics)]
    for name, figures in found.items():
        totals = "".join(f"{figures.totals[metric]:>13,.1f}" for metric in metrics)
        lines.append(f"{name:<10} {figures.unit:<9}{totals}")
    return "\n".join(lines)


def main() -> int:
    """Measures, and compares or records."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write recorded.json anew")
    options = parser.parse_args()
    found = run()["measured"]
    print(table(found))
    if options.record:
        RECORDED.write_text(written({"measured": found}))
        return 0
    before = read(RECORDED.read_text())["measured"]
    changes = [change for name in found for change in moved(name, before.get(name), found[name])]
    print(*changes, sep="\n")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
