"""What the head asks of nodes: the requests stand in a node's desired state, and it posts the
answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from dataclasses import dataclass, field
from typing import Any

from layercake.agents.https.routes import MAX_BODY
from layercake.agents.sync import Sync
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import OperationFailed, Unreachable

TELL_AGAIN_S = 1.0
"""A node that does not come is told again: a datagram may be lost."""


class NotFetched(Unreachable):
    """The node never fetched the request: it has not begun it, and cannot any more."""


@dataclass(slots=True)
class _Pending:
    """A request that waits. `fetched` is set when the node was given it, `most` the bytes that its
    answer may have."""

    node: str
    request: dict[str, Any]
    most: int
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How long a request may take, in seconds: `fetch_s` until the node has fetched it, `answer_s`
    from then on until its answer. `most` are the bytes that the answer may have."""

    fetch_s: float
    answer_s: float
    most: int = MAX_BODY


class NodeRequests:
    """The requests that are waiting for a node's answer."""

    def __init__(self, store: Store, sync: Sync) -> None:
        self._store = store
        self._sync = sync
        # No other head has used these: an answer that a node still has for a request of before a
        # restart must not be taken for that of another one.
        self._numbers = itertools.count(secrets.randbits(48) << 10)
        self._of_node: dict[str, dict[int, _Pending]] = {}
        self._pending: dict[int, _Pending] = {}

    async def request(self, record: Record, request: dict[str, Any], timeout: float = 15.0) -> Any:
        """Sends a request to a node's agent and waits for its answer. Raises Unreachable if none
        comes in `timeout` seconds, OperationFailed if the node says that it failed."""
        number, pending = self._place(record, request, MAX_BODY)
        self._sync.push(record)
        try:
            async with asyncio.timeout(timeout):
                return _checked(record, await pending.answer)
        except TimeoutError:
            raise Unreachable(f"cannot ask {record.name}: no answer in {timeout:.0f} s") from None
        finally:
            self._remove(number)

    async def request_watched(
        self, record: Record, request: dict[str, Any], limits: RequestLimits
    ) -> Any:
        """The same, and it is known whether the node has begun. It is told until it comes; when
        nobody waits any more, a node that has begun is told to stop. Raises NotFetched,
        Unreachable, OperationFailed."""
        number, pending = self._place(record, request, limits.most)
        try:
            await self._handed_out(record, pending, limits.fetch_s)
            async with asyncio.timeout(limits.answer_s):
                return _checked(record, await asyncio.shield(pending.answer))
        except TimeoutError:
            raise Unreachable(
                f"cannot say how it ended on {record.name}: no answer in {limits.answer_s:.0f} s; "
                "it may still run"
            ) from None
        finally:
            self._remove(number)
            if pending.fetched.is_set() and not pending.answer.done():
                self._changed(record)
                self._sync.push(record)

    async def _handed_out(self, record: Record, pending: _Pending, fetch_s: float) -> None:
        """Tells a node until it has fetched the request. Raises NotFetched."""
        try:
            async with asyncio.timeout(fetch_s):
                while not pending.fetched.is_set():
                    self._sync.push(record)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(TELL_AGAIN_S):
                            await pending.fetched.wait()
        except TimeoutError:
            raise NotFetched(
                f"cannot reach {record.name}: its agent did not answer in {fetch_s:.0f} s; nothing "
                "was begun there",
                hint=f"see `layercake node explain {record.name}`",
            ) from None

    def _place(self, record: Record, request: dict[str, Any], most: int) -> tuple[int, _Pending]:
        """Puts a request into a node's desired state. Raises Unreachable."""
        if not self._sync.expects(record):
            raise NotFetched(
                f"cannot ask {record.name}: its agent is not in sync",
                hint=f"see `layercake node explain {record.name}`",
            )
        number = next(self._numbers)
        pending = _Pending(record.node.id, request, most)
        self._pending[number] = pending
        self._of_node.setdefault(record.node.id, {})[number] = pending
        self._changed(record)
        return number, pending

    def _changed(self, record: Record) -> None:
        self._store.revise(record)
        self._store.mark(record)

    def _remove(self, number: int) -> None:
        pending = self._pending.pop(number)
        of_node = self._of_node[pending.node]
        del of_node[number]
        if not of_node:
            del self._of_node[pending.node]

    def document(self, record: Record) -> dict[str, Any]:
        """What a node's desired state says of them."""
        pending = self._of_node.get(record.node.id, {})
        for one in pending.values():
            one.fetched.set()
        return {"requests": [{"id": number, **one.request} for number, one in pending.items()]}

    def most(self, record: Record, number: int | None) -> int:
        """The bytes that the answer of a request may have."""
        pending = None if number is None else self._pending.get(number)
        return pending.most if pending is not None and pending.node == record.node.id else MAX_BODY

    def resolve(self, record: Record, number: int | None, answer: dict[str, Any]) -> bool:
        """Hands a node's answer to whoever waits for it; whether anybody does."""
        pending = None if number is None else self._pending.get(number)
        if pending is None:
            return False
        if pending.node == record.node.id and not pending.answer.done():
            pending.answer.set_result(answer)
        return True


def _checked(record: Record, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer. Raises OperationFailed for one that says that it failed."""
    if not answer.get("ok"):
        raise OperationFailed(f"{record.name} says: {str(answer.get('error', 'no'))[:500]}")
    return answer
