"""What the head asks of nodes: the requests stand in a node's desired state, and it posts the
answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from layercake.agents.sync import Sync
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import OperationFailed, Unreachable


class NodeRequests:
    """The requests that are waiting for a node's answer."""

    def __init__(self, store: Store, sync: Sync) -> None:
        self._store = store
        self._sync = sync
        self._numbers = itertools.count(1)
        self._requests: dict[str, dict[int, dict[str, Any]]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def request(self, record: Record, request: dict[str, Any], timeout: float = 15.0) -> Any:
        """Sends a request to a node's agent and waits for its answer. Raises Unreachable if none
        comes in `timeout` seconds, OperationFailed if the node says that it failed."""
        if record.value("run") != "SYNC":
            hint = f"see `layercake node explain {record.name}`"
            raise Unreachable(f"cannot ask {record.name}: its agent is not in sync", hint=hint)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self._requests.setdefault(record.node.id, {})[number] = request
        record.cfg_revision += 1
        self._store.mark(record)
        self._sync.push(record)
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise Unreachable(f"cannot ask {record.name}: no answer in {timeout:.0f} s") from None
        finally:
            self._answers.pop(number, None)
            self._requests.get(record.node.id, {}).pop(number, None)
        if not answer.get("ok"):
            raise OperationFailed(f"{record.name} says: {str(answer.get('error', 'no'))[:500]}")
        return answer

    def document(self, record: Record) -> dict[str, Any]:
        """What a node's desired state says of them."""
        pending = self._requests.get(record.node.id, {})
        return {"requests": [{"id": number, **request} for number, request in pending.items()]}

    def resolve(self, record: Record, number: int | None, answer: dict[str, Any]) -> bool:
        """Hands a node's answer to whoever waits for it; whether anybody does."""
        future = None if number is None else self._answers.get(number)
        if future is None:
            return False
        if number in self._requests.get(record.node.id, {}) and not future.done():
            future.set_result(answer)
        return True
