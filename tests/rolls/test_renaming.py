"""A node keeps its name while a roll has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.features.inventory.renaming import NodeNames
from layercake.kraken.errors import Refused
from tests.support.rollnodes import a_site


async def test_a_node_in_a_roll_is_renamed_when_that_is_over(tmp_path: Path) -> None:
    async with a_site(tmp_path, 2) as site:
        names = site.world.head.part(NodeNames)
        roll = await site.start("n0", "two", batch="1", health_s=60.0)
        with pytest.raises(Refused, match=f"cannot rename n0: roll {roll.id} to two"):
            await names.rename("n[0-1]", "x[0-1]", "ann")
        assert site.world.head.store.names == ["n0", "n1"]
        await site.until_over(roll.id)
        await names.rename("n[0-1]", "x[0-1]", "ann")
        assert site.world.head.store.names == ["x0", "x1"]
