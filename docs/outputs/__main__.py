"""Compares what pages show with what their commands print now, or writes it into them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from docs.outputs import blocks, masks
from docs.outputs.blocks import Step
from docs.outputs.places import PLOTS, Sims

DOCS = Path(__file__).resolve().parents[1]


def pages(chosen: Iterable[Path] = ()) -> dict[Path, list[Step]]:
    """What there is to run on simulations, by page: of all pages, or of those that were chosen.
    Raises ValueError for a page that is run at two places."""
    found = {}
    for page in list(chosen) or sorted(DOCS.rglob("*.md")):
        steps = [step for step in blocks.steps(page.read_text()) if step.place in PLOTS]
        if len({step.place for step in steps}) > 1:
            raise ValueError(f"{page.name} is run at several places: take one for each page")
        if steps:
            found[page] = steps
    return found


def main() -> int:
    """The exit status: 1 if a page shows something else than its commands print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    parser.add_argument("pages", nargs="*", type=Path, help="these pages only")
    given = parser.parse_args()
    wanted = pages(page.resolve() for page in given.pages)
    with Sims(sorted({steps[0].place for steps in wanted.values()})) as sims:
        printed = sims.outputs(wanted)
    wrong = 0
    for page, steps in wanted.items():
        outputs = printed[page]
        for number, step in enumerate(steps):
            if found := masks.difference(step.shown, outputs[number]):
                wrong += 1
                sys.stdout.write(f"{page.name}: {step.command}\n{found}\n")
            else:
                outputs[number] = list(
                    step.shown
                )  # another time or id is no reason to write it anew
        if given.write:
            page.write_text(blocks.rewritten(page.read_text(), outputs))
    return 1 if wrong and not given.write else 0


if __name__ == "__main__":
    sys.exit(main())
