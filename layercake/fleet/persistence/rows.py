"""How records and events stand in the database: JSON, everything by name, what is secret as the
file's mode protects it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from layercake.base.text import clean
from layercake.fleet.boots import Boots
from layercake.fleet.guard_state import GuardState
from layercake.fleet.store import BootTimes, Event, NetworkCard, Record, Session, Trust, WantedImage
from layercake.fleet.table import Table
from layercake.kraken.converge import NodeState
from layercake.kraken.errors import OperationFailed
from layercake.kraken.variables import Layout
from layercake.moduleapi.event_loop.slices import in_slices

Row: TypeAlias = tuple[int, str, str]
AT_ONCE = 2000
"""How many records are put into words at a time: the words of 100,000 took 150 MB."""
EventRow: TypeAlias = tuple[int, float, str, str, str, str, str]
_PACKED = {"state": 0, "goal": (0, 0), "assumed": 0}
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class _Session(msgspec.Struct):
    number: int
    key: bytes  # base64, as msgspec writes bytes
    boot_id: str
    joined: float
    mutual: bool = False
    quoted: bool = False
    layout: msgspec.Raw = msgspec.Raw(b"null")


class _Row(msgspec.Struct):
    """What is stored of a node. What an older head did not write has a default."""

    node: dict[str, Any]
    machine: dict[str, Any]
    was: dict[str, str]
    changed_at: float
    cfg_revision: int
    dsc_revision: int
    acked: int
    session: _Session | None
    applied: tuple[str, ...] | None = None
    wanted: tuple[WantedImage, ...] = ()
    running: tuple[WantedImage, ...] = ()
    stage: tuple[WantedImage, ...] = ()
    staged: tuple[str, ...] = ()
    care: GuardState | None = None
    boots: Boots = Boots()
    trust: Trust = Trust()
    cards: tuple[NetworkCard, ...] = ()
    boot_times: BootTimes = BootTimes()
    address: tuple[str, int] | None = None
    api_port: int = 0


_decode = msgspec.json.Decoder(_Row).decode


def pack(record: Record) -> str:
    """A record's text. Raises TypeError, ValueError or RecursionError for what cannot be put into
    words."""
    session = record.session
    values = record.values()
    return _encode(
        {
            "node": record.node.to_record(),
            "machine": _by_name(record.machine),
            "was": values if record.remembered is None else record.remembered.fill(values),
            "applied": record.applied,
            "wanted": record.wanted,
            "running": record.running,
            "stage": record.stage,
            "staged": sorted(record.staged),
            "care": record.care,
            "boots": record.boots,
            "trust": record.trust,
            "cards": record.cards,
            "boot_times": record.boot_times,
            "address": record.address,
            "api_port": record.api_port,
            "changed_at": record.changed_at,
            "cfg_revision": record.cfg_revision,
            "dsc_revision": record.dsc_revision,
            "acked": record.acked,
            "session": session
            and {
                "number": session.number,
                "key": session.key,
                "boot_id": session.boot_id,
                "joined": session.joined,
                "mutual": session.mutual,
                "quoted": session.quoted,
                "layout": session.layout and session.layout.to_wire(),
            },
        }
    ).decode()


def _by_name(machine: NodeState) -> dict[str, Any]:
    """What is kept of a node's place in the state graph. Packed numbers mean nothing to a head with
    other variables: what was discovered is kept by name ("was"), and the goal is made anew of what
    is wanted."""
    found = machine.to_record()
    for name in _PACKED:
        del found[name]
    return found


def unpack(row: int, text: str, table: Table) -> tuple[Record, dict[str, str]]:
    """A record, and the discovered values of the time of writing. Raises MsgspecError, LookupError,
    TypeError or ValueError for what is damaged."""
    data = _decode(text)
    node = table.node(data.node)
    s = data.session
    session = (
        Session(s.number, s.key, s.boot_id, s.joined, _layout(bytes(s.layout)), s.mutual, s.quoted)
        if s
        else None
    )
    record = Record(
        row,
        node,
        table.planner_for(node),
        NodeState.from_record(_PACKED | data.machine),
        wanted=data.wanted,
        running=data.running,
        stage=data.stage,
        applied=node.images if data.applied is None else data.applied,
        staged=frozenset(data.staged),
        cfg_revision=data.cfg_revision,
        dsc_revision=data.dsc_revision,
        acked=data.acked,
        session=session,
        changed_at=data.changed_at,
        boot_times=data.boot_times,
        address=data.address,
        api_port=data.api_port,
        boots=data.boots,
        trust=data.trust,
        cards=data.cards,
        care=GuardState(ours=s is not None, up=s is not None) if data.care is None else data.care,
    )
    return record, data.was


@functools.lru_cache(maxsize=16)
def _layout(text: bytes) -> Layout | None:
    """The layout of a session; nodes share it."""
    data = msgspec.json.decode(text)
    return Layout.from_wire(data) if data else None


def event_row(event: Event) -> EventRow:
    """An event's row. One whose data cannot be put into words says so in their place."""
    try:
        data = _encode(event.data).decode()
    except (TypeError, ValueError, RecursionError) as error:
        data = _encode({"not written": f"{type(error).__name__}: {error}"[:300]}).decode()
    return event.id, event.at, event.node, event.kind, event.severity, clean(event.text), data


def event_of(row: EventRow, *, security: bool) -> Event:
    """The event of a row. Raises ValueError or MsgspecError for what is damaged."""
    return Event(*row[:6], msgspec.json.decode(row[6]), security)


async def put_into_words(
    records: Iterable[Record], apart: dict[str, str] | None = None
) -> AsyncIterator[list[Row]]:
    """The rows of records, some at a time, a slice of time after the other: a thread would take the
    loop's time all the same, and more of it. One that cannot be put into words is set `apart`, with
    why, by its node's id. Raises OperationFailed if nobody asks for those."""
    rows: list[Row] = []
    async for record in in_slices(records):
        key = record.node.id
        try:
            rows.append((record.row, key, pack(record)))
        except (TypeError, ValueError, RecursionError) as error:
            why = f"{type(error).__name__}: {error}"[:300]
            if apart is None:
                raise OperationFailed(f"cannot write the record of node {key}: {why}") from None
            apart[key] = why
        if len(rows) >= AT_ONCE:
            yield rows
            rows = []
    yield rows


class WrittenRows:
    """Which rows the database has, by their nodes: the same one is not written again, as those of
    all nodes when a head has begun and sees them as they were. Kept are hashes, 0.1 kB a node."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}

    def fresh(self, rows: Iterable[Row]) -> list[Row]:
        """Those that it has not."""
        return [row for row in rows if self._hashes.get(row[1]) != hash(row[2])]

    def note(self, rows: Iterable[Row]) -> None:
        """It has them."""
        self._hashes.update((key, hash(text)) for _, key, text in rows)

    def forget(self, keys: Iterable[str]) -> None:
        """What it has of these nodes is not known, or nothing."""
        for key in keys:
            self._hashes.pop(key, None)

    @contextlib.asynccontextmanager
    async def in_doubt(self, keys: Collection[str]) -> AsyncIterator[None]:
        """Some of these are being written: if that fails, what it has of them is not known."""
        try:
            yield
        except BaseException:
            self.forget(keys)
            raise


def decoded(data: bytes | None, kind: type[T]) -> T | None:
    """A column in JSON; None for none, and for one that cannot be read."""
    try:
        return None if not data else msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None
