"""Calls: what modules can be asked outside the state engine, about nodes or about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.errors import InputError, LayercakeError, NotFound
from layercake.moduleapi.module import Call
from layercake.modules.calls import AskModule

AT_ONCE = 64


class Calls:
    """Asks modules."""

    def __init__(self, store: Store, table: Table, ask: AskModule) -> None:
        self._store = store
        self._table = table
        self._ask = ask

    def find(self, name: str) -> Call:
        """The call of that name, of those that people may ask. Raises NotFound."""
        found = self._table.call(name)
        if found.inside:
            raise NotFound(
                f"cannot call {name}: only the head itself does", hint="see `layercake calls`"
            )
        return found

    async def call(self, name: str, nodes: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """[{"node", "ok", "answer", "error", "hint"}], one for each node of the range, or one with
        node "" for a call that is about no node. Raises NotFound for the call, and InputError for a
        range where none belongs, or none where one does."""
        call = self.find(name)
        if not call.per_node:
            if nodes:
                raise InputError(
                    f"cannot call {name} of {nodes[:80]}: it is about no node",
                    hint="leave the range out",
                )
            return [await self._one(name, None, params)]
        if not nodes:
            raise InputError(
                f"cannot call {name}: of which nodes?", hint="name them; @all is every node"
            )
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(record: Record) -> dict[str, Any]:
            async with turns:
                return await self._one(name, record, params)

        return list(await asyncio.gather(*(one(record) for record in self._store.select(nodes))))

    async def _one(
        self, name: str, record: Record | None, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "node": record.name if record else "",
            "ok": False,
            "answer": None,
            "error": "",
            "hint": "",
        }
        try:
            about = {"node": record.node.id} if record else {}
            return {**row, "ok": True, "answer": await self._ask(name, {**params, **about})}
        except LayercakeError as error:
            return {**row, "error": error.message, "hint": error.hint}

    def views(self) -> list[dict[str, Any]]:
        """All calls as the API shows them: name, module, summary, role, per_node, and JSON schemas
        of request and answer."""
        table = self._table
        return [
            {
                "name": c.name,
                "module": table.caller[c.name],
                "summary": c.summary,
                "role": c.role.name.lower(),
                "per_node": c.per_node,
                "request": msgspec.json.schema(c.request),
                "answer": msgspec.json.schema(c.answer),
            }
            for _, c in sorted(table.calls.items())
            if not c.inside
        ]
