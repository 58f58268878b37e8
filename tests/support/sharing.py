"""How `make test` shares files of tests out to its workers: those of tests/vm, which have one rack,
to the first; the other files with virtual machines to the second, then all else; those that wait
most of their time (`waits`) to the third and the fourth. A worker that has none of its own left
helps.

So only one rack of tests/vm is set up, no more than two racks compete for the processors, and these
have something to do while others wait: with three workers they were idle for a quarter of the time,
with four for an eighth (29 min, and 25 min, on two processors at a `calibration_s` of 0.092; on two
that may be one core a fourth did not help: 35 min, and 38 min).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

RACK = "rack"
MACHINES = "machines"
WAITING = "waiting"
OTHERS = "others"
ORDER = (
    (RACK, MACHINES, OTHERS, WAITING),
    (MACHINES, OTHERS, WAITING, RACK),
    (WAITING, OTHERS, MACHINES, RACK),
)
"""Whose files each worker takes, first those of its own."""
LONGEST = "tests/vm/test_rack.py"


@functools.cache
def kind_of(file: str, root: Path) -> str:
    """Of which kind a file of tests is; it is read once."""
    if file.startswith("tests/vm/"):
        return RACK
    text = (root / file).read_text()
    return WAITING if "mark.waits" in text else MACHINES if "mark.vm" in text else OTHERS


def chosen(files: Sequence[str], worker: int, root: Path) -> str:
    """The file that a worker takes next, of those that are left; help with the rack begins at its
    end."""
    kinds = {file: kind_of(file, root) for file in files}
    for kind in ORDER[min(worker, len(ORDER) - 1)]:
        found = sorted(
            (file for file in files if kinds[file] == kind), key=lambda file: file != LONGEST
        )
        if found:
            return found[-1] if kind == RACK and worker else found[0]
    return files[0]


class Sharing(LoadFileScheduling):  # type: ignore[misc]  # xdist says nothing of its types
    """xdist's own sharing by files, in that order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        root = Path(str(self.config.rootpath))
        self.workqueue.move_to_end(
            chosen(list(self.workqueue), self.nodes.index(node), root), last=False
        )
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing | None:
    """Where files are shared out."""
    return Sharing(config, log) if config.getoption("dist") == "loadfile" else None
