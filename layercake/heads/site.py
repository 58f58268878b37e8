"""This head among the heads of its site: follows, leads, and what the database writes through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from layercake import __version__
from layercake.base.clock import boottime
from layercake.base.files import write_json
from layercake.fleet.persistence import schema
from layercake.fleet.persistence.changes import Changes
from layercake.fleet.site_heads import SiteHead
from layercake.heads import member
from layercake.heads.consoles.copies import ConsoleCopies
from layercake.heads.copying import FileCopies, HeadLink, keep_files
from layercake.heads.etcd import Etcd, MemberStatus
from layercake.heads.leadership import Leadership, PowerLease, Won
from layercake.heads.log import Leader, Overview, SharedLog
from layercake.heads.settings import ENDPOINTS, HeadsSettings, read_seal, store_endpoints, store_tls
from layercake.heads.standby import HeadSays, Namesake, Standby, heads_in, keep_saying
from layercake.heads.store_loop import StoreLoop, repeat
from layercake.heads.upkeep import LOOK_S, StoreUpkeep, WholeCopies, WriteCounts
from layercake.kraken.errors import LayercakeError

log = logging.getLogger("layercake.heads")
ROLE_S = 0.5
LEADS_S = 2.0
STOP_S = 3.0
T = TypeVar("T")


class HeadsShown(msgspec.Struct, frozen=True):
    """The heads of a site: the one that answers, the one that leads ("" if none does), how many
    leaders there have been, the newest entry of the log that a head has, what each says of itself,
    and how the members of their store are. `trouble` is why that is not known, "" if it is. A head
    whose files have another mark than `files` is behind; `retired` are those that do not lead any
    more. `lease_s` is for how long the head that answers leads still if it cannot renew that, 0.0
    if it does not lead; `own_store` whether the members are the heads' own, and `troubles` what has
    been wrong for a while, as the leader sees it. A site with one head has none of it."""

    this: str
    leader: str
    epoch: int
    entry: int
    heads: list[HeadSays]
    members: list[MemberStatus]
    trouble: str = ""
    files: str = ""
    retired: list[str] = []
    lease_s: float = 0.0
    own_store: bool = False
    troubles: list[str] = []


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
        self.prefix = settings.prefix
        self._database = database
        self._reached = reached
        self._endpoints_file = data_dir / ENDPOINTS if (data_dir / member.FILE).exists() else None
        own = member.own_url(data_dir)  # first: it is gone only where this head is
        endpoints = sorted(store_endpoints(data_dir, settings), key=lambda one: one != own)
        self._etcd = Etcd(endpoints, store_tls(data_dir, settings.store))
        self._shared = SharedLog(self._etcd, settings.prefix, read_seal(data_dir))
        self.upkeep = StoreUpkeep(self._etcd, data_dir, own, boottime)
        self.writes = WriteCounts()
        self._loop = StoreLoop()
        self._me = Leader(settings.name, url, 0.0)
        self._power = power
        self.standby = Standby(self._shared, self._database, self._me)
        self.standby.may_lead = False  # until it is known what it lacks
        self.leadership: Leadership | None = None
        self.files = FileCopies(data_dir, settings.name, self._shared, link, self._files_changed)
        self.consoles = ConsoleCopies(data_dir, link)
        self.files_changed: Callable[[Sequence[str]], None] = lambda paths: None
        """Called, in the store's loop, with the paths of files that were copied from the leader."""
        self.is_ready: Callable[[], bool] = lambda: True
        """Whether a head that follows would lead at once; asked in the store's loop."""
        self.before_files: Callable[[], None] = lambda: None
        """Called, in a thread, before a leader looks at its files."""
        self._namesake = Namesake()
        self.give_up_addresses: Callable[[], None] = lambda: None
        """Called, in the store's loop, as it leads no more, and before another one can."""
        self._whole = WholeCopies(self._shared, database, lambda: bool(self.lost))
        self._overview: tuple[float, Overview] | None = None
        self.lost = ""
        """Why it leads no more; "" while it does."""

    # -- its life

    def begin(self) -> None:
        """Tells the other heads of this one from now on."""
        run = self._loop.run
        run(keep_saying(self._shared, self.name, self.says, self._namesake), "tell the other heads")
        for work, pause_s, to in (
            (self._follow_members, lambda: LOOK_S, "follow the members of the heads' store"),
            (self._keep_role, self._role_s, "find out whether this head may lead"),
            (self._keep_store, lambda: LOOK_S, "look after the store of the heads"),
        ):
            run(repeat(work, pause_s, to), to)
        run(keep_files(self.files, self._look_after_files), "look after the files of the site")
        run(self.consoles.copy_from(self._followed), "copy the logs of consoles")

    def _role_s(self) -> float:
        return ROLE_S if self.leadership is None else LEADS_S

    async def lead(self, lost: Callable[[], None]) -> Leadership:
        """Follows until this head leads. `lost` is called in this loop when it does so no more.
        Raises InputError for a copy of the database that cannot be used."""
        here = asyncio.get_running_loop()
        won = await self._loop.do(self.standby.wait_to_lead())

        def over(why: str) -> None:
            self.lost = why
            self.give_up_addresses()
            log.warning("this head leads no more: %s", why)
            here.call_soon_threadsafe(lost)

        self.leadership = await self._loop.do(self._begin_to_lead(won, over))
        first = self.leadership
        noting = asyncio.to_thread(self.consoles.note_takeover, self.name)
        self._loop.run(noting, "say in the logs of consoles who leads")
        if not won.has_whole:
            # Without it others had what is written from now on, and not what is here already, or
            # in another form.
            await asyncio.to_thread(lambda: schema.open_database(self._database).close())
            await self._loop.do(self._whole.keep_first(first))
        self._loop.run(self._whole.keep_current(first), "keep a whole copy in the store")
        return first

    async def _begin_to_lead(self, won: Won, lost: Callable[[str], None]) -> Leadership:
        self._overview = None  # another head led then
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
    def leads_until(self) -> float:
        """Until when (CLOCK_BOOTTIME) this head surely leads, 0 if it does not."""
        return self.leadership.leads_until if self.leadership is not None else 0.0

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

    @property
    def refuses(self) -> str:
        """Why no head may change anything now, "" if this one may."""
        try:
            if self.leadership is not None:
                self.leadership.check()
        except LayercakeError as error:
            return error.message
        return ""

    def check(self) -> None:
        """Raises OperationFailed if nothing can be written now."""
        with self.writes.counted():
            if self.leadership is not None:
                self.leadership.check()

    def write(self, written: Changes) -> tuple[int, str]:
        """Has changes in the log; number and name of the entry. Raises OperationFailed: they are
        not in it."""
        if self.leadership is None:
            raise RuntimeError("a head that does not lead writes")
        began = boottime()
        with self.writes.counted():
            end = self._loop.wait(self.leadership.append(written))
        self.writes.commits.add(boottime() - began)
        return end.number, end.name

    # -- the store

    async def ask_store(self, work: Callable[[Etcd], Coroutine[Any, Any, T]]) -> T:
        """Has the store asked. Raises StoreAway and StoreRefused."""
        return await self._loop.do(work(self._etcd))

    async def _follow_members(self) -> None:
        """Asks the members that there are, also after those of the settings have gone."""
        if self._endpoints_file is None:
            return
        urls = sorted(
            url
            for one in await self._etcd.members()
            if not one.get("isLearner")
            for url in one.get("clientURLs", ())
        )
        if urls and urls != sorted(self._etcd.endpoints):
            self._etcd.use_endpoints(urls)
            write_json(self._endpoints_file, urls)

    async def _keep_store(self) -> None:
        """Looks after the members of the store: the head that leads does, and where none can lead,
        as the store is full, each head that is there."""
        leads = self.leadership is not None and not self.lost
        await self.upkeep.look_after(acts=leads)
        if leads or self.leader is None:
            await self.upkeep.make_room()

    def give_up(self, why: str) -> None:
        """Leads no more: its copy of the database has not what is in the log."""
        if self.leadership is not None:
            self._loop.wait(self.leadership.give_up(why))

    def _followed(self) -> str:
        """The URL of the head that this one follows, "" for none."""
        leader = self.leader if self.leadership is None else None
        return leader.url if leader is not None and leader.head != self.name else ""

    # -- files, and who leads because of them

    def _files_changed(self, paths: Sequence[str]) -> None:
        self.files_changed(paths)

    async def _look_after_files(self) -> None:
        """A follower has the leader's files; a leader names them."""
        leadership = self.leadership
        if leadership is None:
            leader = self.leader
            await self.files.follow(leader.url if leader else "")
        elif not self.lost:
            await asyncio.to_thread(self.before_files)
            await self.files.publish(leadership.term)

    async def _keep_role(self) -> None:
        """A head that is retired, or lacks files that another one has, leaves the lead to
        others."""
        if self.lost:
            return
        found = await self._recent_overview(0.0)
        heads = heads_in(found.published)
        if self.leadership is None:
            may_lead = self.name not in found.retired and await self.files.may_lead(heads)
            self.standby.may_lead = may_lead
        elif self.files.lacks or self.name in found.retired:
            await self._hand_on(self.leadership, found.retired, heads)

    async def _hand_on(
        self, leadership: Leadership, retired: Sequence[str], heads: Sequence[HeadSays]
    ) -> None:
        """To one that has all files: another one would not lead."""
        others = [one for one in heads if one.head not in (self.name, *retired)]
        successor = await self.files.with_all(others)
        if successor and self.files.lacks:
            log.warning("%s has files that this head lacks: it is to lead", successor)
        if successor:
            await leadership.hand_over(successor)

    async def retire(self, head: str, *, retired: bool) -> None:
        """A head leads no more, or may again. Raises StoreAway and StoreRefused."""
        await self._loop.do(self._shared.retire(head, retired=retired))

    async def keep_own(self) -> None:
        """What this head has is all that there is from now on; see Standby.keep_own."""
        await self._loop.do(self.standby.keep_own(self.files.newest))

    async def accept_files(self) -> None:
        """The files of this head, which leads, are all that there are. Raises LayercakeError."""
        if self.leadership is not None:
            await self._loop.do(self.files.accept(self.leadership.term))

    async def wait_until_copied(self) -> None:
        """Returns when the other heads have the files that this one has now; see FileCopies."""
        if self.leadership is not None and not self.lost:
            try:
                term = self.leadership.term
                await self._loop.do(self.files.wait_until_copied(term))
            except LayercakeError as error:
                log.warning("the other heads may not have all files yet: %s", error)

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
            or self._namesake.trouble
            or self.files.trouble,
            at=time.time(),
            reached=self._reached,
            files=self.files.mark,
            instance=self._namesake.instance,
            behind_s=0.0 if leads else self.standby.behind_s,
            certificate_ends=self.upkeep.own_ends,
            consoles="" if leads else self.consoles.trouble,
            ready=leads or self.is_ready(),
        )

    @property
    def lease_s(self) -> float:
        """For how many seconds this head leads still if its lease cannot be renewed, 0.0 if it does
        not lead."""
        return 0.0 if self.leadership is None or self.lost else self.leadership.lease_s

    @property
    def leader(self) -> Leader | None:
        """Who leads, as a follower saw it last."""
        state = self.standby.state
        return state.leader if state else None

    async def _recent_overview(self, age_s: float) -> Overview:
        """What is told of the heads, as it was so many seconds ago at the earliest. Raises as
        SharedLog.overview."""
        if self._overview is None or boottime() - self._overview[0] >= age_s:
            asked = boottime()
            self._overview = (asked, await self._shared.overview())
        return self._overview[1]

    async def view(self, age_s: float = 0.0) -> HeadsShown:
        """How the heads and their store are, as far as that is known here, as it was so many
        seconds ago at the earliest."""
        trouble = ""
        epoch = 0
        leader = ""
        heads = [self.says()]
        files = ""
        retired: list[str] = []
        try:
            found = await self._loop.do(self._recent_overview(age_s))
            epoch = found.state.epoch
            leader = found.state.leader.head if found.state.leader else ""
            heads = heads_in(found.published)
            files = found.files.partition(" ")[0]
            retired = [name for name in found.retired if name in found.published]
        except LayercakeError as error:
            trouble = str(error)
            leader = self.name if heads[0].leads else ""
        # One that was killed has said before that it leads.
        heads = [msgspec.structs.replace(one, leads=one.head == leader) for one in heads]
        return HeadsShown(
            this=self.name,
            leader=leader,
            epoch=epoch,
            entry=max((one.entry for one in heads), default=0),
            heads=sorted(heads, key=lambda one: one.head),
            members=await self._loop.do(self.upkeep.statuses(age_s)),
            trouble=trouble,
            files=files,
            retired=retired,
            lease_s=self.lease_s,
            own_store=self._endpoints_file is not None,
        )
