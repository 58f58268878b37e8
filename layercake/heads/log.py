"""The log that the heads of a site share: each entry is what one transaction of the leader's has
changed in its database. All of it is in etcd, sealed with a key that etcd does not have.

    now/leader       who leads, on that head's lease; `created` of this key fences each write
    now/epoch        how many leaders there were; it grows in the transaction that makes a leader
    now/next         which head shall lead next, for a few seconds
    now/end          number and name of the newest entry, and how many parts it has
    now/files        the mark of the files that a leader has which has all of them
    retired          the names of heads that do not lead any more, in JSON
    log/N            the last part of entry N, with its name and that of the entry before
    part/N/NAME/P    its other parts: etcd takes 1.5 MiB at a time
    snapshot         number and name of the entry that a whole copy has, how many parts that is, and
                     the copy's own name
    whole/COPY/P     its parts
    heads/NAME       what each head says of itself, on its own lease

An entry counts when `end` names it: `log/N` and `end` are written in one transaction, which holds
only while the leader is the one that it was, and `end` what it was.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from layercake.heads import etcd
from layercake.heads.etcd import Etcd, KeyValue, StoreAway, StoreRefused
from layercake.kraken.errors import OperationFailed

PART_BYTES = 512 << 10
PAGE = 200
"""How many entries are read at a time."""
_NONCE = 12
_LEVEL = 1


_READ = ("now/end", "now/leader", "now/epoch", "now/next", "snapshot")


class End(NamedTuple):
    """The newest entry: its number, from 1 on, and its name, which no other has. `modified` is
    etcd's revision, 0 if there is none yet."""

    number: int = 0
    name: str = ""
    modified: int = 0


class Leader(msgspec.Struct, frozen=True):
    """Who leads: the head's name, where people reach it, and since when (seconds since the epoch,
    by its clock)."""

    head: str
    url: str
    since: float


class Snapshot(msgspec.Struct, frozen=True):
    """A whole copy of the database, as of an entry; in so many parts, below a name that no other
    copy has. All entries after it are of its `schema`, as those before 0.3 did not say."""

    number: int
    name: str
    parts: int = 0
    copy: str = ""
    schema: int = 2


@dataclass(frozen=True, slots=True)
class LogState:
    """The log as it is at one revision. `created` fences: it is that of the leader's key, 0 if
    nobody leads. `epoch_modified` is etcd's revision of the epoch. `successor` is the head that
    shall lead next, "" for any."""

    end: End
    leader: Leader | None
    created: int
    epoch: int
    epoch_modified: int
    successor: str
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The log, what the heads say of themselves, by name, the mark of the site's files, and which
    heads do not lead any more; all of one moment."""

    state: LogState
    published: dict[str, bytes]
    files: str
    retired: list[str]


class Term(NamedTuple):
    """A time of being the leader: the revision at which it began, and its epoch."""

    created: int
    epoch: int


class _Last(msgspec.Struct):
    """The value of `log/N`; `before` is the name of the entry before."""

    name: str
    parts: int
    data: bytes
    before: str = ""


_encode = msgspec.msgpack.Encoder().encode
_last = msgspec.msgpack.Decoder(_Last).decode


class Entry(NamedTuple):
    """An entry of the log, opened; `before` is the name of the one before."""

    number: int
    name: str
    data: bytes
    before: str


class SealedEntry(NamedTuple):
    """An entry as it is written: sealed once, so that two tries write the same."""

    number: int
    name: str
    before: str
    parts: tuple[bytes, ...]


class Seal:
    """Packs and encrypts what goes into the store, by AES-256-GCM with the site's key."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def close(self, data: bytes, place: bytes) -> bytes:
        """The sealed data, good at this place only."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, zlib.compress(data, _LEVEL), place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """What was sealed. Raises OperationFailed for what this site's heads did not write."""
        try:
            packed = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], place)
        except (InvalidTag, ValueError):
            raise OperationFailed(
                "cannot read the heads' store: it was not written by the heads of this site",
                hint="is this the site's etcd, and is the key of the heads the same on each?",
            ) from None
        return zlib.decompress(packed)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """What is read of the store. Raises OperationFailed for what no head has written."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise OperationFailed(f"cannot read the heads' store: {error}") from None


def _parts(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [b""]


def _names(found: Sequence[KeyValue]) -> list[str]:
    with _ours():
        return msgspec.json.decode(found[0].value, type=list[str]) if found else []


class SharedLog:
    """The log in etcd, below `prefix`."""

    def __init__(self, store: Etcd, prefix: str, seal: Seal) -> None:
        self.store = store
        self._prefix = prefix.encode()
        self._seal = seal
        self._page = PAGE

    def _key(self, name: str) -> bytes:
        return self._prefix + name.encode()

    async def state(self) -> LogState:
        """The log as it is now. Raises StoreAway and StoreRefused."""
        answer = await self.store.transaction((), self._reads())
        return self._state(answer.found)

    def _reads(self) -> list[dict[str, object]]:
        return [etcd.get_keys(self._key(name)) for name in _READ]

    @staticmethod
    def _state(found: Sequence[Sequence[KeyValue]]) -> LogState:
        end, leader, epoch, follows, snapshot = (pairs[0] if pairs else None for pairs in found)
        newest = End()
        with _ours():
            if end is not None:
                number, name = msgspec.msgpack.decode(end.value, type=tuple[int, str])
                newest = End(number, name, end.modified)
            return LogState(
                newest,
                msgspec.json.decode(leader.value, type=Leader) if leader else None,
                leader.created if leader else 0,
                int(epoch.value) if epoch else 0,
                epoch.modified if epoch else 0,
                follows.value.decode() if follows else "",
                msgspec.json.decode(snapshot.value, type=Snapshot) if snapshot else None,
            )

    async def lead(
        self, state: LogState, leader: Leader, lease: int, above: int = 0
    ) -> Term | None:
        """Becomes the leader of a log that has none and is as it was seen; None if it is not. Its
        epoch is above the log's and `above`, that which this head knows: a log that was put back
        has forgotten some. Raises StoreAway, after which it may be so, and StoreRefused."""
        epoch = max(state.epoch, above) + 1
        answer = await self.store.transaction(
            [
                etcd.is_new(self._key("now/leader")),
                etcd.modified_at(self._key("now/end"), state.end.modified),
                etcd.modified_at(self._key("now/epoch"), state.epoch_modified),
            ],
            [
                etcd.put_key(self._key("now/leader"), msgspec.json.encode(leader), lease),
                etcd.put_key(self._key("now/epoch"), str(epoch).encode()),
            ],
        )
        return Term(answer.revision, epoch) if answer.succeeded else None

    def sealed(self, end: End, name: str, data: bytes) -> SealedEntry:
        """The entry after `end`, to be appended once or several times."""
        number = end.number + 1
        parts = _parts(self._seal.close(data, f"log {number} {name}".encode()))
        return SealedEntry(number, name, end.name, tuple(parts))

    async def append(self, term: Term, end: End, entry: SealedEntry) -> End | LogState:
        """Writes the entry after `end`. The new end; or what the log is instead, of another leader
        or with another end, and then this is not in it by this call. Raises StoreAway, after which
        it may be, and StoreRefused."""
        number, name, before, parts = entry
        fence = [etcd.created_at(self._key("now/leader"), term.created)]
        for at, part in enumerate(parts[:-1]):
            put = etcd.put_key(self._key(f"part/{number:016x}/{name}/{at:04x}"), part)
            if not (await self.store.transaction(fence, [put])).succeeded:
                return await self.state()
        last = _encode(_Last(name, len(parts), parts[-1], before))
        answer = await self.store.transaction(
            [*fence, etcd.modified_at(self._key("now/end"), end.modified)],
            [
                etcd.put_key(self._key(f"log/{number:016x}"), last),
                etcd.put_key(self._key("now/end"), _encode((number, name))),
            ],
            self._reads(),
        )
        if answer.succeeded:
            return End(number, name, answer.revision)
        return self._state(answer.found)

    async def entries(self, after: int, upto: int) -> list[Entry]:
        """Entries in order, those with higher numbers than `after`, `upto` at most; not
        necessarily all. Fewer are asked for at a time where so many did not come. Raises StoreAway,
        StoreRefused, and OperationFailed for what no head of this site wrote."""
        first = self._key(f"log/{after + 1:016x}")
        try:
            pairs = await self.store.read(first, self._key(f"log/{upto + 1:016x}"), self._page)
        except StoreAway:
            self._page = max(1, self._page // 2)
            raise
        self._page = min(PAGE, 2 * self._page)
        found = []
        for number, pair in enumerate(pairs, after + 1):
            if pair.key != self._key(f"log/{number:016x}"):
                break
            with _ours():
                last = _last(pair.value)
            sealed = last.data
            if last.parts > 1:
                where = self._key(f"part/{number:016x}/{last.name}/")
                sealed = await self._join(where, last.parts - 1) + sealed
            data = self._seal.open(sealed, f"log {number} {last.name}".encode())
            found.append(Entry(number, last.name, data, last.before))
        return found

    async def _join(self, where: bytes, parts: int) -> bytes:
        found = [
            pair
            for at in range(parts)
            for pair in await self.store.read(where + f"{at:04x}".encode())
        ]
        if len(found) != parts:
            raise StoreRefused("cannot read the heads' store: a part of an entry is missing")
        return b"".join(pair.value for pair in found)

    async def keep_whole(
        self, term: Term, which: Snapshot, content: bytes, *, ends: str | None = None
    ) -> bool:
        """Keeps a whole copy that has the entry that `which` says, and forgets entries that nobody
        needs then, and all other copies, whole or begun. Whether it could: not if another head
        leads. With `ends`, the mark of the files, the log ends with this entry from now on: a
        head has more than the log. Raises StoreAway and StoreRefused."""
        number = which.number
        name = which.name
        copy = os.urandom(8).hex()
        place = f"whole/{copy}/"
        fence = [etcd.created_at(self._key("now/leader"), term.created)]
        parts = _parts(self._seal.close(content, f"whole {number} {name}".encode()))
        for at, part in enumerate(parts):
            put = etcd.put_key(self._key(f"{place}{at:04x}"), part)
            if not (await self.store.transaction(fence, [put])).succeeded:
                return False
        kept = msgspec.structs.replace(which, parts=len(parts), copy=copy)
        snapshot = msgspec.json.encode(kept)
        own = self._key(place)
        every = self._key("whole/")
        forget = [
            etcd.put_key(self._key("snapshot"), snapshot),
            etcd.delete_keys(self._key("log/"), self._key(f"log/{number + 1:016x}")),
            etcd.delete_keys(self._key("part/"), self._key(f"part/{number + 1:016x}")),
            etcd.delete_keys(every, own),
            etcd.delete_keys(etcd.after(own), etcd.after(every)),
        ]
        if ends is not None:
            forget.append(etcd.put_key(self._key("now/end"), _encode((number, name))))
            forget.append(etcd.put_key(self._key("now/files"), ends.encode()))
        return (await self.store.transaction(fence, forget)).succeeded

    async def whole(self, snapshot: Snapshot) -> bytes:
        """A whole copy. Raises StoreAway and StoreRefused, also if a newer one has taken its
        place."""
        where = self._key(f"whole/{snapshot.copy}/")
        sealed = await self._join(where, snapshot.parts)
        return self._seal.open(sealed, f"whole {snapshot.number} {snapshot.name}".encode())

    async def step_down(self, term: Term, successor: str = "", lease: int = 0) -> None:
        """Ends a time of being the leader; for as long as the lease lasts only `successor` leads
        then. Raises StoreAway and StoreRefused."""
        key = self._key("now/leader")
        then = [etcd.delete_keys(key)]
        if successor:
            then.append(etcd.put_key(self._key("now/next"), successor.encode(), lease))
        await self.store.transaction([etcd.created_at(key, term.created)], then)

    async def publish(
        self, head: str, about: bytes, lease: int, seen: int = 0
    ) -> tuple[int, bytes]:
        """What a head says of itself: at which revision that stands, and what stood there instead
        of what this head said at the revision `seen` (0: it has not said anything), b"" for
        nothing else. Raises StoreAway and StoreRefused."""
        key = self._key(f"heads/{head}")
        put = etcd.put_key(key, about, lease)
        as_it_was = [etcd.modified_at(key, seen)] if seen else []
        answer = await self.store.transaction(as_it_was, [put], [etcd.get_keys(key), put])
        others = answer.found[0] if answer.found else ()
        return answer.revision, others[0].value if others else b""

    async def overview(self) -> Overview:
        """All that is told of the heads, by one request. Raises StoreAway, StoreRefused and
        OperationFailed."""
        where = self._key("heads/")
        answer = await self.store.transaction(
            (),
            [
                *self._reads(),
                etcd.get_keys(where, etcd.after(where)),
                etcd.get_keys(self._key("now/files")),
                etcd.get_keys(self._key("retired")),
            ],
        )
        *state, published, files, retired = answer.found
        return Overview(
            self._state(state),
            {pair.key[len(where) :].decode(errors="replace"): pair.value for pair in published},
            files[0].value.decode(errors="replace") if files else "",
            _names(retired),
        )

    async def published(self) -> dict[str, bytes]:
        """What the heads say of themselves, by name. Raises StoreAway and StoreRefused."""
        where = self._key("heads/")
        pairs = await self.store.read(where, etcd.after(where))
        return {pair.key[len(where) :].decode(errors="replace"): pair.value for pair in pairs}

    async def files(self) -> str:
        """The mark of the site's files (heads.files), "" if no leader has named any. Raises
        StoreAway and StoreRefused."""
        found = await self.store.read(self._key("now/files"))
        return found[0].value.decode(errors="replace") if found else ""

    async def keep_files(self, term: Term, mark: str) -> bool:
        """Names the site's files; not if another head leads. Raises StoreAway and StoreRefused."""
        answer = await self.store.transaction(
            [etcd.created_at(self._key("now/leader"), term.created)],
            [etcd.put_key(self._key("now/files"), mark.encode())],
        )
        return answer.succeeded

    async def retired(self) -> list[str]:
        """The heads that do not lead any more. Raises StoreAway and StoreRefused."""
        return _names(await self.store.read(self._key("retired")))

    async def retire(self, head: str, *, retired: bool) -> None:
        """A head does not lead any more, or may again. Raises StoreAway and StoreRefused."""
        key = self._key("retired")
        written = False
        while not written:
            found = await self.store.read(key)
            names = {*_names(found)} - {head} | ({head} if retired else set())
            as_it_was = etcd.modified_at(key, found[0].modified if found else 0)
            put = etcd.put_key(key, msgspec.json.encode(sorted(names)))
            written = (await self.store.transaction([as_it_was], [put])).succeeded

    async def changed(self) -> None:
        """Returns when the leader or the end may have changed, or the watch has ended."""
        where = self._key("now/")
        async with contextlib.aclosing(self.store.watch(where, etcd.after(where))) as hints:
            async for _ in hints:
                return
