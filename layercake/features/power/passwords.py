"""The passwords of many BMCs are changed in one step, and no old one is given up before its BMC was
seen to take the new one.

A new password is on the head's disk, beside the old one (Vault.prepare), before any BMC has it.
Which BMCs take it stands in the database, a document for each node: with these the head uses the
new one, with all others the old one. Once all nodes whose passwords are in one file take the new
one, it becomes that file's. So it may stop anywhere, and goes on when it is asked for again.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from layercake.api.caller import said_by
from layercake.base.secrets import SecretRef, Vault, within
from layercake.base.text import first_few
from layercake.features.guard.guard import Guard
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.persistence.schema import RESTORE_HINT
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, LayercakeError, Refused
from layercake.moduleapi.event_loop.slices import in_slices
from layercake.modules.calls import AskModule

PASSWORD = "power.password"  # noqa: S105 (the call's name)
LOG_IN = "power.log-in"
AT_ONCE = 16
"""BMCs whose password is changed at the same time."""
CHANGE_S = 120.0
"""Seconds that one of them may take."""
BYTES = 12
"""Random ones: sixteen letters, which every BMC takes (IPMI 2.0, 22.30)."""
DOCUMENTS = "bmcpassword/"
_GIVEN = re.compile(r"[!-~]{12,20}", re.ASCII)
NAMED = 5
"""How many nodes a message names."""


class Mark(msgspec.Struct, frozen=True):
    """Of a node whose BMC gets a new password, prepared beside `file`: whether it was `seen` to
    take it. Until then either may be the one that it takes."""

    file: str
    seen: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """How it went with a node's BMC; `error` says why it has not got the new password. `file` is
    where its password is, from the directory of secrets on."""

    node: str
    file: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Job:
    """What is under way: `stop` has it begin nothing more."""

    results: asyncio.Queue[Changed | None]
    stop: asyncio.Event


class BmcPasswords:
    """Changes passwords, and knows which nodes' BMCs take which. `module` offers the call that
    sets one, None if none does; `changed` has modules told of a node anew."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        vault: Vault,
        ask: AskModule,
        module: Callable[[], str | None],
        changed: Callable[[Record], None],
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._vault = vault
        self._ask = ask
        self._module = module
        self._changed = changed
        self._marks: dict[str, Mark] = {}
        self._job: asyncio.Task[None] | None = None
        self._under_way: _Job | None = None

    # -- what is known

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what an earlier head left. Raises InputError if it is damaged."""
        for key, data in documents.items():
            try:
                mark = msgspec.json.decode(data, type=Mark)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InputError(
                    f"cannot read {key} in the database: {error}", hint=RESTORE_HINT
                ) from None
            self._marks[key.removeprefix(DOCUMENTS)] = mark

    def current(self, record: Record, ref: SecretRef) -> SecretRef:
        """Where the secret of a node is that the inventory has at `ref`: beside it, while its BMC
        takes the new password already and others do not."""
        mark = self._marks.get(record.node.id)
        if mark is None or not mark.seen or ref.file is None or mark.file != self._file(ref):
            return ref
        return self._vault.prepared(ref) or ref

    def forget(self, record: Record) -> None:
        """A node is about to leave."""
        if self._marks.pop(record.node.id, None) is not None:
            self._store.documents[DOCUMENTS + record.node.id] = bytes

    def uncertain(self, record: Record) -> list[str]:
        """What a person has to know of a node: it is not clear which password its BMC takes."""
        mark = self._marks.get(record.node.id)
        if mark is None or mark.seen or self._under_way is not None:
            return []
        text = (
            f"which password its BMC takes is not known: `layercake power password {record.name}`"
        )
        return [text]

    # -- changing

    async def change(self, text: str, given: str, by: str) -> AsyncGenerator[Changed, None]:
        """Gives the BMCs of a range a new password: a random one for each file of the inventory,
        or what is in the secret's file `given`. The results come as they are known; who leaves has
        no more begun. Raises InputError and Refused; nothing is done then."""
        if self._under_way is not None:
            raise Refused(
                "cannot change passwords of BMCs: some are being changed",
                hint="wait until that is done",
            )
        records = self._store.select(text)
        self._guard.refuse_frozen(records, "change the password of the BMC of")
        job = self._under_way = _Job(asyncio.Queue(), asyncio.Event())
        try:
            files, left = self._by_file(records)
            value = await asyncio.to_thread(self._given, given)
            some = [users[0] for users in files.values()]
            await asyncio.to_thread(self._refuse_others, some, value)
            for record in some:
                await asyncio.to_thread(self._prepare, record, value)
        except BaseException:
            self._under_way = None
            raise
        self._job = asyncio.create_task(self._run(job, files, left, by))
        return self._results(job, self._job)

    @staticmethod
    async def _results(job: _Job, task: asyncio.Task[None]) -> AsyncGenerator[Changed, None]:
        try:
            while (result := await job.results.get()) is not None:
                yield result
            await task
        finally:
            job.stop.set()

    async def stop(self) -> None:
        """Begins no more; returns when what was begun is done."""
        if self._under_way is not None and self._job is not None:
            self._under_way.stop.set()
            await asyncio.wait([self._job])

    def _ref(self, record: Record) -> SecretRef | None:
        """Where the inventory has the password of a node's BMC."""
        part = record.node.parts.get(self._module() or "")
        found = getattr(part, "password", None)
        return found if isinstance(found, SecretRef) else None

    def _file(self, ref: SecretRef) -> str:
        """A secret's file, from the directory of secrets on. Raises InputError."""
        return str(within(self._vault.directory, Path(ref.file or "")))

    def _by_file(self, records: Iterable[Record]) -> tuple[dict[str, list[Record]], list[Changed]]:
        """The nodes whose passwords are in each file, and those that the head cannot write. Raises
        InputError if others have theirs from one of these files."""
        files: dict[str, list[Record]] = {}
        left = []
        for record in records:
            ref = self._ref(record)
            if ref is None:
                left.append(Changed(record.name, "", "the inventory names no password of its BMC"))
            elif ref.file is None:
                why = f"its password is in an {ref}, which the head cannot write"
                left.append(Changed(record.name, "", why))
            else:
                files.setdefault(self._file(ref), []).append(record)
        for file, users in files.items():
            others = [r.name for r in self._users(file) if r not in users]
            if others:
                raise InputError(
                    f"cannot change the password of the BMC of {users[0].name}: "
                    f"{first_few(others, NAMED)} have theirs from the same file, {file}",
                    hint="name all of them, or give these nodes a file of their own in the "
                    "inventory (`bmc: {password: {file: PATH}}`)",
                )
        return files, left

    def _users(self, file: str) -> list[Record]:
        """All nodes whose BMC's password is in a file."""
        return [
            record
            for record in self._store
            if (ref := self._ref(record)) is not None
            and ref.file is not None
            and self._file(ref) == file
        ]

    def _given(self, file: str) -> str:
        """The password that a person has put into a secret's file, "" for a random one. Raises
        InputError; what is in the file is never shown."""
        if not file:
            return ""
        value = self._vault.open(SecretRef(file=file)).reveal()
        if not _GIVEN.fullmatch(value):
            raise InputError(
                f"cannot use the password in {file}: it is 12 to 20 letters, digits and signs of "
                "ASCII, without spaces",
                hint="some BMCs take no more than 16",
            )
        return value

    def _prepare(self, record: Record, value: str) -> None:
        """Has the new password of a node's file on disk. Raises InputError."""
        ref = self._ref(record)
        if ref is None:
            return
        random = partial(secrets.token_urlsafe, BYTES)
        self._vault.prepare(ref, (lambda: value) if value else random)

    def _refuse_others(self, records: Iterable[Record], value: str) -> None:
        """Raises InputError if a new password that was given is not the one that is prepared."""
        for record in records if value else ():
            ref = self._ref(record)
            prepared = self._vault.prepared(ref) if ref is not None else None
            if prepared is not None and self._vault.open(prepared).reveal() != value:
                raise InputError(
                    f"cannot use the password that was given: another one is prepared for {ref}, "
                    "and BMCs may have it already",
                    hint="go on with that one first: leave out --new",
                )

    async def _run(
        self, job: _Job, files: Mapping[str, list[Record]], left: Iterable[Changed], by: str
    ) -> None:
        turns = asyncio.Semaphore(AT_ONCE)
        try:
            for result in left:
                job.results.put_nowait(result)
            each = [(file, record) for file, users in files.items() for record in users]

            async def one(file: str, record: Record) -> None:
                async with turns:
                    if not job.stop.is_set():
                        error = await self._one(record, file, by)
                        job.results.put_nowait(Changed(record.name, file, error))

            await asyncio.gather(*(one(*item) for item in each))
        finally:
            self._under_way = None
            job.results.put_nowait(None)

    async def _one(self, record: Record, file: str, by: str) -> str:
        """Changes one; why it was not, "" if it was."""
        try:
            error = await self._change(record, file, by)
            if not error:
                await self._commit(file)
            return error
        except LayercakeError as failed:  # the disk is full, a file cannot be written
            return failed.message

    async def _change(self, record: Record, file: str, by: str) -> str:
        mark = self._marks.get(record.node.id)
        known = mark is not None and mark.file == file
        ref = self._vault.prepared(SecretRef(file=file))
        if known and mark is not None and mark.seen:
            return ""
        if ref is None:
            return "the new password that was prepared is gone"
        new = (await asyncio.to_thread(self._vault.open, ref)).reveal()
        if not known:
            if (error := await self._log_in(record)) is not None:
                return f"{error}; its password is as it was"
            await self._note(record, Mark(file, seen=False))
        try:
            request = {"node": record.node.id, "password": new}
            answer = await self._ask(PASSWORD, request, timeout=CHANGE_S)
            error = str(answer["left"])
        except LayercakeError as failed:
            error = failed.message
            if await self._log_in(record) is not None:
                return f"{error}; which password it takes is not known, ask again"
        if error:
            await self._note(record, None)
            return f"{error}; the old password still works"
        await self._note(record, Mark(file, seen=True), by)
        self._changed(record)
        return ""

    async def _log_in(self, record: Record) -> str | None:
        """Why a BMC does not take the password that the head uses for it, None if it does."""
        try:
            await self._ask(LOG_IN, {"node": record.node.id})
        except LayercakeError as error:
            return error.message
        return None

    async def _note(self, record: Record, mark: Mark | None, by: str = "") -> None:
        """Has it on disk which password a node's BMC takes."""
        key = DOCUMENTS + record.node.id
        async with self._desire.transaction(revises=False) as transaction:
            if mark is None:
                transaction.documents[key] = bytes
                transaction.after(self._marks.pop, record.node.id, None)
                return
            transaction.documents[key] = partial(msgspec.json.encode, mark)
            transaction.after(self._marks.__setitem__, record.node.id, mark)
            if mark.seen:
                text = f"its BMC takes the new password, by {said_by(by)}"
                transaction.event(record, events.POWER_PASSWORD, text)

    async def _commit(self, file: str) -> None:
        """Makes the new password that of the file once all BMCs take it. Raises LayercakeError."""
        users = self._users(file)
        marks = [self._marks.get(record.node.id) for record in users]
        if not all(mark is not None and mark.seen and mark.file == file for mark in marks):
            return
        await asyncio.to_thread(self._vault.commit, SecretRef(file=file))
        async with self._desire.transaction(revises=False) as transaction:
            async for record in in_slices(users):
                transaction.documents[DOCUMENTS + record.node.id] = bytes
                transaction.after(self._marks.pop, record.node.id, None)
