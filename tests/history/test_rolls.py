"""Rolls and releases are in the history, under the name of who asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

from layercake.features.history.feature import FOLDER
from layercake.features.history.history import History
from layercake.fleet.store import Hold
from tests.history.conftest import Site
from tests.support.api import served
from tests.support.rollnodes import a_site


def log(directory: Path) -> list[str]:
    words = ["git", "-c", "safe.directory=*", "--git-dir", str(directory / FOLDER), "log"]
    done = subprocess.run([*words, "--format=%an|%s"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


async def test_a_roll_is_a_commit_as_it_begins_and_as_nodes_switch(tmp_path: Path) -> None:
    async with a_site(tmp_path, 4) as site:
        history = site.world.head.part(History)
        await history.caught_up()
        async with served(site.world.head, local=True) as api:
            body = {"range": "n[0-3]", "image": "two", "batch": "50%", "by": "ann"}
            answer = await api.post("/v1/rolls", json=body)
            assert answer.status == 200
        await site.until_over(1)
        await history.caught_up()
        told = log(tmp_path)
    begun = next(i for i, line in enumerate(told) if line.endswith("roll 1 of 4 nodes to two"))
    assert " for ann|" in told[begun]
    switched = told[:begun]
    assert switched and all("|change images of n" in line for line in switched)
    assert all(" for ann|" in line for line in switched)


async def test_a_release_holds_a_node_and_lets_it_go(site: Site) -> None:
    desire = site.world.head.desire
    for hold in (Hold("being released"), None):
        async with desire.transaction() as transaction:
            desire.hold(transaction, site.world.node("n0"), hold)
    await site.history.caught_up()
    assert log(site.world.directory)[:2] == [
        "layercake|released: n0",
        "layercake|hold for release: n0",
    ]
