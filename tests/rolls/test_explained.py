"""`explain` and `node explain` name the roll that has a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.features.nodes.causes import CauseFinder
from layercake.features.nodes.explain import Explainer, explain_text
from layercake.kraken.converge import Discovered
from tests.support.rollnodes import Site, a_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 4) as found:
        yield found


async def explained(site: Site, name: str) -> Any:
    explainer = site.world.head.part(Explainer)
    return await explainer.explain(site.world.node(name), [], brief=False)


async def test_a_roll_is_named_as_long_as_it_has_the_node(site: Site) -> None:
    roll = await site.start("n[0-1]", "two", batch="1", health_s=60.0)
    for name in ("n1", "n3"):
        record = site.world.node(name)
        site.world.head.engine.post(record, Discovered({"image": "ERROR"}, "it says so"))
    view = await explained(site, "n1")
    assert view["roll"].startswith(f"{roll.id} to two: ")
    assert f"  roll:    {view['roll']}" in explain_text(view).splitlines()
    assert view["roll"].endswith(f"; `layercake roll status {roll.id}`")
    assert (await explained(site, "n3"))["roll"] == ""
    assert "  roll:" not in explain_text(await explained(site, "n3"))
    causes = (await site.world.head.part(CauseFinder).of(None, brief=False))["causes"]
    of = {name: [(r.id, r.image, r.range) for r in c.rolls] for c in causes for name in c.nodes}
    assert of["n1"] and of["n1"][0][:2] == (roll.id, "two")
    assert all("n3" not in found[2] for rolls in of.values() for found in rolls)
    await site.until_over(roll.id)
    assert (await explained(site, "n1"))["roll"] == ""
