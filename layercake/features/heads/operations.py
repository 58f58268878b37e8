"""What can be asked of the heads of a site."""

from __future__ import annotations

import asyncio

from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.heads.site import HeadsShown, SharedSite
from layercake.kraken.errors import NotFound, Refused

ALONE = HeadsShown("", "", 0, 0, [], [])


class HeadChanges:
    """The heads, for people. `site` is None for a head that is alone."""

    def __init__(self, site: SharedSite | None, store: Store) -> None:
        self._site = site
        self._store = store
        self._handing = asyncio.Lock()

    async def view(self) -> HeadsShown:
        """How they are."""
        return ALONE if self._site is None else await self._site.view()

    async def promote(self, head: str) -> HeadsShown:
        """Hands over to another head. The answer is how they were before. Raises Refused for one
        that cannot lead now, NotFound for one that is not there."""
        site = self._site
        if site is None:
            raise Refused(
                "cannot have another head lead: this site has one head",
                hint="`layercake init --join` makes a second one",
            )
        async with self._handing:
            found = await self.view()
            other = next((one for one in found.heads if one.head == head), None)
            if other is None:
                names = ", ".join(one.head for one in found.heads)
                raise NotFound(f"cannot find head {head!r}: there are {names}")
            if other.leads:
                raise Refused(f"cannot have {head} lead: it does")
            if other.trouble:
                raise Refused(f"cannot have {head} lead: {other.trouble}")
            self._store.event(None, events.HEAD_HANDS_OVER, f"{site.name} hands over to {head}")
            await site.hand_over(head)
            return found
