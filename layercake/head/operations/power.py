"""Power: what the BMCs say, and a power cycle. On and off are states that are wanted of nodes (operations/nodes.py)."""

from __future__ import annotations

from typing import Any

from layercake.head import events
from layercake.head.access.caller import said_by
from layercake.head.guard.facts import Order
from layercake.head.head import Head
from layercake.head.operations.calls import Calls
from layercake.head.operations.nodes import Nodes
from layercake.head.views.nodes import parts_view
from layercake.kraken.converge import Cleared
from layercake.kraken.errors import Refused

STATUS = "power.status"


class Power:
    """Operations on nodes' power."""

    def __init__(self, head: Head, nodes: Nodes, calls: Calls) -> None:
        self._head = head
        self._nodes = nodes
        self._calls = calls

    async def cycle(self, text: str, force: bool, by: str = "") -> list[str]:
        """Power-cycles nodes: the engine stops their images, switches them off, and boots them anew. Forced, it stops nothing
        first."""
        async with self._head.desire.draft() as draft:
            records = self._nodes.select(text)
            self._nodes.refuse_busy(records, force)
            self._head.guard.refuse_frozen(records, "cycle")
            off = [r.name for r in records if r.node.state == "off"]
            if off:
                raise Refused(f"cannot cycle {', '.join(off[:10])}: wanted off", hint="use `layercake power on`")
            who = said_by(by)
            asked = f"{who} asked for a power cycle" + (", by force" if force else "")
            for record in records:
                draft.event(record, events.POWER_CYCLE, asked)
                draft.post(record, Cleared(asked))
                if record.value("power") != "OFF":
                    self._nodes.order(draft, record, Order("cycle", force=force, by=who, at=self._head.clock()))
        return [r.name for r in records]

    async def status(self, text: str) -> list[dict[str, Any]]:
        """What the BMCs say now; one that does not answer has an error in its row."""
        return [self._row(answer) for answer in await self._calls.ask(STATUS, text, {})]

    def _row(self, answer: dict[str, Any]) -> dict[str, Any]:
        known = parts_view(self._head.store.named(answer["node"]).node, self._head.table).get("bmc") or {}
        said = answer["answer"] or {}
        error = f"{answer['error']} (hint: {answer['hint']})" if answer["hint"] else answer["error"]
        return {"node": answer["node"], "driver": known.get("driver"), "address": known.get("address"),
                "power": said.get("power", "UNKNOWN"), "error": error or None}
