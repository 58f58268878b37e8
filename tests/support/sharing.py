"""How `make test` shares files of tests out to its workers: those of tests/vm, which have one rack,
to the first; the other files with virtual machines to the second, then all else; those that wait
most of their time (`waits`) to those after it. A worker that has none of its own left helps.

So only one rack of tests/vm is set up, no more than two racks compete for the processors, and these
have something to do while others wait: with three workers they were idle for a quarter of the time,
with four for an eighth (29 min, and 25 min, on two processors at a `calibration_s` of 0.092), with
five for a fourteenth.
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
LONG = (
    "tests/vm/test_rack.py",
    "tests/package/test_install.py",
    "tests/head/test_crowd.py",
    "tests/heads/test_two_heads.py",
    "tests/heads/test_chaos.py",
    "tests/images/test_leaks.py",
    "tests/package/test_build.py",
    "tests/package/test_ocf.py",
    "tests/heads/test_membership.py",
    "tests/dashboard/test_night.py",
    "tests/boot/test_site_servers.py",
    "tests/heads/test_all_lost.py",
    "tests/dashboard/test_console.py",
    "tests/sim/test_browser.py",
)
"""Those that take a minute and more, which a worker takes first of their kind: begun last, one of
them is waited for while the other processor has nothing to do."""


@functools.cache
def kind_of(file: str, root: Path) -> str:
    """Of which kind a file of tests is; it is read once."""
    if file.startswith("tests/vm/"):
        return RACK
    text = (root / file).read_text()
    return WAITING if "mark.waits" in text else MACHINES if "mark.vm" in text else OTHERS


def _place(file: str) -> int:
    return LONG.index(file) if file in LONG else len(LONG)


def chosen(files: Sequence[str], worker: int, root: Path) -> str:
    """The file that a worker takes next, of those that are left; help with the rack begins at its
    end."""
    kinds = {file: kind_of(file, root) for file in files}
    for kind in ORDER[min(worker, len(ORDER) - 1)]:
        found = sorted((file for file in files if kinds[file] == kind), key=_place)
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
