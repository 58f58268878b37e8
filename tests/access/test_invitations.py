"""Invitations of further heads, when several people and machines are at it at once."""

from __future__ import annotations

import asyncio

import pytest

from layercake.api.access import NotKnown
from layercake.features.heads.invitations import Invitations
from tests.support.world import World


async def test_none_is_lost_and_none_is_used_twice(world: World) -> None:
    invitations = Invitations(world.head.desire, lambda: 0.0)

    def invited(name: str) -> asyncio.Task[str]:
        return asyncio.create_task(invitations.add(name, b"", "ann", witness=False))

    first, second = await asyncio.gather(invited("head2"), invited("head3"))
    third = invited("head4")
    found = await invitations.redeem(first, witness=False)
    assert found.name == "head2"
    with pytest.raises(NotKnown, match="it was used"):
        await invitations.redeem(first, witness=False)
    for token, name in ((second, "head3"), (await third, "head4")):
        assert (await invitations.redeem(token, witness=False)).name == name
