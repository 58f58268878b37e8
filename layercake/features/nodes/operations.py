"""Nodes: which ones a range names, what is wanted of them, and what reaches into them: their logs,
and commands."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from imageapi.spec.names import NAME
from layercake.agents.client import NodeLink
from layercake.agents.https.requests import NodeRequests
from layercake.agents.node_commands import check_command
from layercake.agents.sync import Sync
from layercake.api.caller import said_by
from layercake.base.clock import Clock
from layercake.base.text import parse_json
from layercake.features.guard.guard import Guard
from layercake.fleet import events
from layercake.fleet.desired import DesiredState, refuse_busy
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.converge import Cleared
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused, Unreachable
from layercake.moduleapi.event_loop.slices import in_slices

LAST_LINE = 200
"""Bytes; the last line of a command's answer says how it ended and is short."""
COMMAND_SHOWN = 200
SPARE_S = 60.0
"""Seconds that a command's answer has after the time of the command, for who takes it slowly."""


@dataclasses.dataclass(frozen=True, slots=True)
class _StateChange:
    """Nodes are wanted "up" or "off", by whom. `soft`: only by the system inside."""

    state: str
    by: str
    force: bool
    soft: bool

    @property
    def how(self) -> str:
        """For people, after the state."""
        if self.force:
            return ", by force"
        return ", softly" if self.soft else ""


def _refuse_attended(records: Iterable[Record]) -> None:
    """Raises Refused for nodes that only a person can switch off."""
    if by_hand := [record.name for record in records if record.planner.attended]:
        raise Refused(
            f"cannot shut down {', '.join(by_hand[:10])} softly: without a BMC, a person switches "
            "it"
        )


class Nodes:
    """Operations on nodes."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        clock: Clock,
        sync: Sync,
        node_link: NodeLink,
        requests: NodeRequests,
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._clock = clock
        self._sync = sync
        self._node_link = node_link
        self._requests = requests

    async def set_state(
        self, text: str, state: str, force: bool, by: str = "", *, soft: bool = False
    ) -> list[str]:
        """Wants nodes up or off; `soft`: off as soon as the system inside has shut down by itself,
        and never otherwise. Raises Refused for BUSY nodes that shall go off, unless forced, and for
        nodes that nobody can ask to shut down."""
        if state not in ("up", "off"):
            raise InputError(f"cannot set state {state!r}: it is up or off")
        if soft and (state != "off" or force):
            raise InputError(
                "cannot shut down softly and by force: choose one",
                hint="by force is without waiting for anything",
            )
        change = _StateChange(state, said_by(by), force=force, soft=soft)
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            self._guard.refuse_frozen(records, f"want {state}")
            if soft:
                _refuse_attended(records)
            async for record in in_slices(records):
                self._set_state(transaction, record, change)
            if state == "off":  # last: one may have become BUSY meanwhile
                refuse_busy(records, force)
        return [r.name for r in records]

    def left_off(self, names: Iterable[str]) -> set[str]:
        """Those of the nodes that a person works on and wants off: nothing switches them on when
        the maintenance is over."""
        return {
            name
            for name in names
            if (record := self._store.named(name)).care.maintenance and record.node.state == "off"
        }

    def _set_state(self, transaction: Transaction, record: Record, change: _StateChange) -> None:
        order = None
        is_off = record.value("power") == "OFF"
        if change.state == "off" and (change.force or change.soft) and not is_off:
            order = Order(
                "off", force=change.force, by=change.by, at=self._clock(), soft=change.soft
            )
        transaction.event(
            record, events.DESIRED_STATE, f"wanted {change.state} by {change.by}{change.how}"
        )
        care = partial(replace, ours=True, order=order, released=change.state == "up" and is_off)
        node = dataclasses.replace(record.node, state=change.state)
        self._desire.images(transaction, record, node.images, node=node, care=care)
        if record.care.order is not None and record.care.order.soft:  # it may have failed
            transaction.post(record, Cleared(f"{change.by} wants it {change.state}{change.how}"))
        transaction.after(self._sync.push, record)

    async def clear(self, text: str, by: str = "") -> list[str]:
        """Takes nodes out of quarantine; on a node in sync, also out of FATAL."""
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            async for record in in_slices(records):
                transaction.post(record, Cleared(f"cleared by {said_by(by)}"))
        for record in records:
            if record.value("run") == "SYNC" and record.value("image") in ("FATAL", "ERROR"):
                try:
                    await self._requests.request(record, {"kind": "clear"})
                except LayercakeError as error:
                    self._store.event(record, events.NODE_CLEAR_FAILED, str(error))
        return [r.name for r in records]

    # -- inside a node

    async def logs(self, name: str, container: str, lines: int) -> str:
        """The last lines of a container's log on a node."""
        record = self._store.named(name)
        if not container and record.wanted:
            container = record.wanted[0].name
        answer = await self._requests.request(
            record, {"kind": "logs", "container": container, "lines": max(1, min(lines, 10_000))}
        )
        return str(answer.get("text", ""))

    def container(self, record: Record, name: str) -> str:
        """The container that is meant; the first image's if none is named. Raises NotFound."""
        if not name and record.wanted:
            name = record.wanted[0].name
        if not name:
            raise NotFound(f"cannot find a container on {record.name}: no image is wanted there")
        if not NAME.fullmatch(name):
            raise NotFound(f"cannot find container {name[:80]!r}: that is no image's name")
        return name

    @contextlib.asynccontextmanager
    async def follow(
        self, name: str, container: str, lines: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A container's log as it grows."""
        record = self._store.named(name)
        path = f"/v1/containers/{self.container(record, container)}/log"
        async with self._node_link.open(
            record, "GET", path, query={"lines": str(lines), "follow": "1"}
        ) as answer:
            yield answer.content.iter_any()

    @contextlib.asynccontextmanager
    async def execute(
        self, name: str, command: list[str], container: str, timeout_s: float, who: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Runs a command on a node or in a container: JSON lines as they come. The history says who
        ran what, not what it said."""
        record = self._store.named(name)
        shown = " ".join(check_command(command))[:COMMAND_SHOWN]
        data = {"by": who, "container": container}
        asked = {"command": command, "container": container, "timeout_s": timeout_s}
        where = f"in {container}" if container else "on the node"
        since = time.monotonic()
        last = b""
        self._store.event(record, events.NODE_EXEC, f"{who} runs {where}: {shown}", data=data)
        ended = "cut off"

        async def pieces(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            nonlocal last
            async for part in source:
                last = (last + part)[-LAST_LINE:]
                yield part

        try:
            async with (
                asyncio.timeout(timeout_s + SPARE_S),
                self._node_link.open(record, "POST", "/v1/exec", body=asked) as answer,
            ):
                yield pieces(answer.content.iter_any())
                ended = _ended(last)
        except TimeoutError:
            ended = "without an end, though its time was over"
            raise Unreachable(f"cannot say how it ended on {name}: {ended}") from None
        except LayercakeError as error:
            ended = str(error)
            raise
        finally:
            seconds = round(time.monotonic() - since, 1)
            self._store.event(
                record,
                events.NODE_EXEC_ENDED,
                f"after {seconds:.1f} s, {ended}: {shown}",
                data={**data, "seconds": seconds},
            )


def _ended(lines: bytes) -> str:
    """How a command ended, by the last line of its answer; never what it said."""
    try:
        last: Any = parse_json(lines.rstrip(b"\n").rpartition(b"\n")[2])
    except ValueError:
        return "cut off"
    if isinstance(last, dict) and isinstance(last.get("exit"), int):
        return f"exit status {last['exit']}"
    return "killed after its time" if isinstance(last, dict) and "error" in last else "cut off"
