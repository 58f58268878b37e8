"""This head among the heads of its site: follows, leads, and what the database writes through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from layercake import __version__
from layercake.base.clock import boottime
from layercake.fleet.persistence.changes import Changes
from layercake.fleet.site_heads import SiteHead
from layercake.heads import replica
from layercake.heads.copying import FileCopies, HeadLink, keep_files
from layercake.heads.etcd import Etcd, MemberStatus
from layercake.heads.leadership import Leadership, PowerLease, Won
from layercake.heads.log import Leader, SharedLog
from layercake.heads.settings import HeadsSettings, read_seal, store_tls
from layercake.heads.standby import HeadSays, Standby, heads_of, keep_saying
from layercake.heads.store_loop import StoreLoop
from layercake.kraken.errors import LayercakeError

log = logging.getLogger("layercake.heads")
WHOLE_AFTER_BYTES = 64 << 20
"""A whole copy is kept anew after so many bytes of changes, or twice what a copy has."""
LOOK_S = 5.0
AGAIN_S = 0.5
STOP_S = 3.0


class HeadsShown(msgspec.Struct, frozen=True):
    """The heads of a site: the one that answers, the one that leads ("" if none does), how many
    leaders there have been, the newest entry of the log that a head has, what each says of itself,
    and how the members of their store are. `trouble` is why that is not known, "" if it is. A head
    whose files have another mark than `files` is behind; `retired` are those that do not lead any
    more. A site with one head has none of it."""

    this: str
    leader: str
    epoch: int
    entry: int
    heads: list[HeadSays]
    members: list[MemberStatus]
    trouble: str = ""
    files: str = ""
    retired: list[str] = []


class SharedSite:
    """One head of several. Made and closed by `layercake serve`. People reach it at `url`, nodes as
    `reached` says. Raises InputError for settings or files that cannot be used."""

    def __init__(
        self,
        data_dir: Path,
        settings: HeadsSettings,
        url: str,
        reached: SiteHead,
        database: Path,
        power: PowerLease,
        link: HeadLink,
    ) -> None:
        self.name = settings.name
        self._database = database
        self._reached = reached
        self._etcd = Etcd(settings.store, store_tls(data_dir, settings.store))
        self._shared = SharedLog(self._etcd, settings.prefix, read_seal(data_dir))
        self._loop = StoreLoop()
        self._me = Leader(settings.name, url, 0.0)
        self._power = power
        self.standby = Standby(self._shared, self._database, self._me)
        self.leadership: Leadership | None = None
        self.files = FileCopies(data_dir, settings.name, self._shared, link, self._files_changed)
        self.files_changed: Callable[[Sequence[str]], None] = lambda paths: None
        """Called, in the store's loop, with the paths of files that were copied from the leader."""
        self.before_files: Callable[[], None] = lambda: None
        """Called, in a thread, before a leader looks at its files."""
        self._whole_bytes = 0
        self._whole_at = 0
        self.lost = ""
        """Why it leads no more; "" while it does."""

    # -- its life

    def begin(self) -> None:
        """Tells the other heads of this one from now on."""
        self._loop.begin(keep_saying(self._shared, self.name, self.says))
        self._loop.begin(keep_files(self.files, self._look_after_files))

    async def lead(self, lost: Callable[[], None]) -> Leadership:
        """Follows until this head leads. `lost` is called in this loop when it does so no more.
        Raises InputError for a copy of the database that cannot be used."""
        here = asyncio.get_running_loop()
        won = await self._loop.do(self.standby.wait_to_lead())

        def over(why: str) -> None:
            self.lost = why
            log.error("this head leads no more: %s", why)
            here.call_soon_threadsafe(lost)

        self.leadership = await self._loop.do(self._begin_to_lead(won, over))
        first = self.leadership
        if not won.has_whole:
            # Without it others had what is written from now on, and not what is here already.
            await self._loop.do(self._keep_first(first))
        self._loop.begin(self._keep_whole(first))
        return first

    async def _begin_to_lead(self, won: Won, lost: Callable[[str], None]) -> Leadership:
        leadership = Leadership(self._shared, self._me, won, self._power, lost)
        self._keeping = asyncio.ensure_future(leadership.keep_lease())
        return leadership

    async def hand_over(self, successor: str = "") -> None:
        """Leads no more; `successor` shall, "" for any. Raises StoreAway and StoreRefused."""
        if self.leadership is not None and not self.lost:
            await self._loop.do(self.leadership.hand_over(successor))

    def stopping(self) -> None:
        """The head is about to stop: what it still writes does not wait for ever."""
        if self.leadership is not None:
            self.leadership.waits_until = boottime() + STOP_S

    async def close(self) -> None:
        """Hands over if this head leads, and ends all of it."""
        self._power.set(0.0, 0.0)
        try:
            await self.hand_over()
        except LayercakeError as error:
            log.error("cannot hand over, the lease runs out: %s", error)
        await asyncio.to_thread(self._loop.stop, self._etcd.close())

    # -- what the database asks (fleet.persistence.database.SharedLog)

    @property
    def epoch(self) -> int:
        """In which epoch this head leads, 0 if it does not."""
        return self.leadership.epoch if self.leadership is not None else 0

    @property
    def why_not(self) -> str:
        """Why nothing may be begun on machines now, "" if something may."""
        if self.leadership is None:
            return "this head follows"
        try:
            self.leadership.check()
            self._power.left_s()
        except LayercakeError as error:
            return error.message
        return ""

    def check(self) -> None:
        """Raises OperationFailed if nothing can be written now."""
        if self.leadership is not None:
            self.leadership.check()

    def write(self, written: Changes) -> tuple[int, str]:
        """Has changes in the log; number and name of the entry. Raises OperationFailed: they are
        not in it."""
        if self.leadership is None:
            raise RuntimeError("a head that does not lead writes")
        end = self._loop.wait(self.leadership.append(written))
        return end.number, end.name

    def give_up(self, why: str) -> None:
        """Leads no more: its copy of the database has not what is in the log."""
        if self.leadership is not None:
            self._loop.wait(self.leadership.give_up(why))

    # -- files, and who leads because of them

    def _files_changed(self, paths: Sequence[str]) -> None:
        self.files_changed(paths)

    async def _look_after_files(self) -> None:
        """A follower has the leader's files; a leader names them, and leaves the lead to a head
        that has more."""
        leadership = self.leadership
        retired = self.name in await self._shared.retired()
        if leadership is None:
            leader = self.leader
            try:
                await self.files.follow(leader.url if leader else "")
            finally:
                heads = await heads_of(self._shared)
                self.standby.may_lead = not retired and await self.files.may_lead(heads)
        elif not self.lost:
            heads = await heads_of(self._shared)
            successor = await self.files.with_all(heads) if self.files.lacks else ""
            if successor:
                await leadership.hand_over(successor)
                return
            await asyncio.to_thread(self.before_files)
            await self.files.publish(leadership.term)

    async def wait_until_copied(self) -> None:
        """Returns when the other heads have the files that this one has now; see FileCopies."""
        if self.leadership is not None and not self.lost:
            try:
                term = self.leadership.term
                await self._loop.do(self.files.wait_until_copied(term))
            except LayercakeError as error:
                log.warning("the other heads may not have all files yet: %s", error)

    # -- whole copies

    async def _keep_whole(self, leadership: Leadership) -> None:
        """Keeps a whole copy of the database in the store, anew when the log has grown much."""
        while not self.lost:
            try:
                grown = leadership.appended_bytes - self._whole_at
                if grown > max(WHOLE_AFTER_BYTES, 2 * self._whole_bytes):
                    await self._keep_one(leadership)
            except LayercakeError as error:
                log.error("cannot keep a whole copy of the database in the store: %s", error)
            except Exception:
                log.exception("cannot keep a whole copy of the database in the store")
            await asyncio.sleep(LOOK_S)

    async def _keep_first(self, leadership: Leadership) -> None:
        """Keeps a whole copy before anything else is written; also if it takes several tries."""
        while not self.lost:
            try:
                await self._keep_one(leadership)
                return
            except LayercakeError as error:
                log.error("cannot keep a whole copy of the database in the store: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def _keep_one(self, leadership: Leadership) -> None:
        grown = leadership.appended_bytes
        which, content = await asyncio.to_thread(replica.whole, self._database)
        if await self._shared.keep_whole(leadership.term, which.number, which.name, content):
            self._whole_bytes = len(content)
            self._whole_at = grown

    # -- what is told of it

    def says(self) -> HeadSays:
        """What there is to say of this head."""
        leadership = self.leadership
        leads = leadership is not None and not self.lost
        return HeadSays(
            head=self.name,
            url=self._me.url,
            version=__version__,
            leads=leads,
            entry=leadership.end.number if leads and leadership else self.standby.entry,
            trouble=(leadership.trouble if leads and leadership else self.standby.trouble)
            or self.files.trouble,
            at=time.time(),
            reached=self._reached,
            files=self.files.mark,
        )

    @property
    def leader(self) -> Leader | None:
        """Who leads, as a follower saw it last."""
        state = self.standby.state
        return state.leader if state else None

    async def members(self) -> list[MemberStatus]:
        """How the members of the store are."""
        return await self._loop.do(self._etcd.statuses())

    async def view(self) -> HeadsShown:
        """How the heads and their store are, as far as that is known here."""
        trouble = ""
        epoch = 0
        leader = ""
        heads = [self.says()]
        files = ""
        retired: list[str] = []
        try:
            state = await self._loop.do(self._shared.state())
            epoch = state.epoch
            leader = state.leader.head if state.leader else ""
            heads = await self._loop.do(heads_of(self._shared))
            files = (await self._loop.do(self._shared.files())).partition(" ")[0]
            retired = await self._loop.do(self._shared.retired())
        except LayercakeError as error:
            trouble = str(error)
        # One that was killed has said before that it leads.
        heads = [msgspec.structs.replace(one, leads=one.head == leader) for one in heads]
        return HeadsShown(
            this=self.name,
            leader=leader,
            epoch=epoch,
            entry=max((one.entry for one in heads), default=0),
            heads=sorted(heads, key=lambda one: one.head),
            members=await self.members(),
            trouble=trouble,
            files=files,
            retired=retired,
        )
