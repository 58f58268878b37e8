"""What can be asked of the heads of a site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from layercake.base.clock import boottime
from layercake.features.heads.known import ALONE, KnownHeads
from layercake.features.heads.membership import FilesLacking, Membership, check_others_lead
from layercake.fleet import events
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Store
from layercake.heads.site import HeadsShown
from layercake.kraken.errors import NotFound, Refused

FILES_S = 3.0
"""For so long a head may take to say that it has all files, before it is refused for that."""
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
        membership = self.membership
        membership.entry(head)
        await self._view_when(partial(check_others_lead, name=head))
        await membership.retire(head, by)
        return await self.view()

    async def _view_when(self, check: Callable[[HeadsShown], None]) -> HeadsShown:
        """How the heads are, as soon as `check` refuses nothing. What they say of their files is a
        moment old, so that is waited for. Raises what `check` raises."""
        until = boottime() + FILES_S
        while True:
            found = await self.view()
            try:
                check(found)
            except FilesLacking:
                if boottime() >= until:
                    raise
                await asyncio.sleep(_LOOK_S)
            else:
                return found

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
            lacks = site.files.lacks
            found = await self._view_when(partial(check_able, head=head, lacks=lacks))
            self._store.event(None, events.HEAD_HANDS_OVER, f"{site.name} hands over to {head}")
            await self._database.flush(self._store)
            await site.retire(head, retired=False)
            await site.hand_over(head)
            return found


def check_able(shown: HeadsShown, head: str, *, lacks: bool) -> None:
    """Raises Refused for a head that cannot lead now, FilesLacking if it lacks some that the one
    that leads does not lack (`lacks`), NotFound for one that is not there."""
    other = next((one for one in shown.heads if one.head == head), None)
    if other is None:
        names = ", ".join(one.head for one in shown.heads)
        raise NotFound(f"cannot find head {head!r}: there are {names}")
    if other.leads:
        raise Refused(f"cannot have {head} lead: it does")
    if other.trouble:
        raise Refused(f"cannot have {head} lead: {other.trouble}")
    if other.files != shown.files and not lacks:
        raise FilesLacking(
            f"cannot have {head} lead: it has not all files of the site yet",
            hint="see `layercake heads`, and try again then",
        )
