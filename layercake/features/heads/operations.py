"""What can be asked of the heads of a site."""

from __future__ import annotations

import asyncio

import msgspec

from layercake.base.clock import boottime
from layercake.features.heads.known import ALONE, KnownHeads
from layercake.features.heads.membership import Membership
from layercake.fleet import events
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Store
from layercake.heads.site import HeadsShown
from layercake.kraken.errors import NotFound, Refused

FILES_S = 3.0
_LOOK_S = 0.1


class HeadChanges:
    """The heads, for people. `membership` is None for a head that is alone."""

    def __init__(
        self, membership: Membership | None, known: KnownHeads, store: Store, database: Database
    ) -> None:
        self._site = known.site
        self._known = known
        self._membership = membership
        self._store = store
        self._database = database
        self._handing = asyncio.Lock()

    async def view(self) -> HeadsShown:
        """How they are."""
        if self._site is None:
            return ALONE
        troubles = [one.line for one in self._known.troubles]
        return msgspec.structs.replace(await self._site.view(), troubles=troubles)

    @property
    def membership(self) -> Membership:
        """Who belongs to the heads. Raises Refused on a head that is alone."""
        if self._membership is None:
            raise Refused(
                "cannot do this: this site has one head",
                hint="`layercake heads begin` makes it one of several",
            )
        return self._membership

    async def retire(self, head: str, by: str) -> HeadsShown:
        """A head does not lead any more; if it leads, another one does from now on. Raises NotFound
        and Refused."""
        await self.membership.retire(head, by)
        return await self.view()

    async def _view_of(self, head: str) -> HeadsShown:
        """How the heads are. What one says of its files is a moment old, so if it lacks some, that
        is waited for."""
        until = boottime() + FILES_S
        while True:
            found = await self.view()
            lacks = [one for one in found.heads if one.head == head and one.files != found.files]
            if not lacks or boottime() >= until:
                return found
            await asyncio.sleep(_LOOK_S)

    async def promote(self, head: str) -> HeadsShown:
        """Hands over to another head. The answer is how they were before. Raises Refused for one
        that cannot lead now, NotFound for one that is not there, OperationFailed if what this head
        has seen cannot be written before."""
        site = self._site
        if site is None:
            raise Refused(
                "cannot have another head lead: this site has one head",
                hint="see `layercake docs second-head`",
            )
        async with self._handing:
            found = await self._view_of(head)
            check_able(found, head, lacks=site.files.lacks)
            await site.retire(head, retired=False)
            self._store.event(None, events.HEAD_HANDS_OVER, f"{site.name} hands over to {head}")
            await self._database.flush(self._store)
            await site.hand_over(head)
            return found


def check_able(shown: HeadsShown, head: str, *, lacks: bool) -> None:
    """Raises Refused for a head that cannot lead now, NotFound for one that is not there. `lacks`:
    the one that leads has not all files either."""
    other = next((one for one in shown.heads if one.head == head), None)
    if other is None:
        names = ", ".join(one.head for one in shown.heads)
        raise NotFound(f"cannot find head {head!r}: there are {names}")
    if other.leads:
        raise Refused(f"cannot have {head} lead: it does")
    if other.trouble:
        raise Refused(f"cannot have {head} lead: {other.trouble}")
    if other.files != shown.files and not lacks:
        raise Refused(
            f"cannot have {head} lead: it has not all files of the site yet",
            hint="see `layercake heads`, and try again then",
        )
