"""The serial numbers that nodes' BMCs say: another witness for a machine that says which one it
has. The head asks the BMC itself, at the address of the inventory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from layercake.features.machines.hardware.whereabouts import serial
from layercake.fleet.store import Record
from layercake.kraken.errors import LayercakeError

HARDWARE = "power.hardware"
"""The call by which a BMC says what it knows of its machine's parts."""
GOOD_S = 300.0
"""How long an answer is good, in seconds: strangers speak every 30 s, and some BMCs take as
long."""


class BmcSerials:
    """`ask` calls a module, `wall` gives seconds since the epoch."""

    def __init__(
        self, ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]], wall: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._wall = wall
        self._answers: dict[str, tuple[float, frozenset[str], str]] = {}

    def begin(self, record: Record) -> bool:
        """Whether a node's BMC is to be asked now (refresh): it has one, and that was not asked a
        short while ago."""
        at = self._answers.get(record.node.id, (float("-inf"), frozenset(), ""))[0]
        if record.planner.attended or self._wall() - at <= GOOD_S:
            return False
        self._answers[record.node.id] = (self._wall(), frozenset(), "it is being asked")
        return True

    async def refresh(self, record: Record) -> None:
        """Asks a node's BMC."""
        found: frozenset[str] = frozenset()
        trouble = ""
        try:
            found = _serials(await self._ask(HARDWARE, {"node": record.node.id}))
        except LayercakeError as error:
            trouble = error.message
        self._answers[record.node.id] = (self._wall(), found, trouble)

    def why_not(self, record: Record, number: str) -> str:
        """Why a node's BMC is no witness for a machine with this serial number, "" if it is one."""
        if record.planner.attended:
            return "the node has no BMC that could say so too"
        if record.value("power") == "OFF":
            return "the node's BMC says that its machine is off"
        claim = serial(number)
        _, found, trouble = self._answers.get(record.node.id, (0.0, frozenset(), "not asked yet"))
        if claim is not None and claim.value in found:
            return ""
        if not found:
            return f"the node's BMC says no serial number: {trouble or 'it knows none'}"
        return f"the node's BMC says serial number {', '.join(sorted(found))[:80]}"

    def forget(self, record: Record) -> None:
        """A node is gone."""
        self._answers.pop(record.node.id, None)


def _serials(answer: object) -> frozenset[str]:
    """The serial numbers among the facts that a BMC knows, as they are compared."""
    facts = [one for one in answer if isinstance(one, Mapping)] if isinstance(answer, list) else []
    claims = [
        serial(str(one.get("value", "")))
        for one in facts
        if "serial" in str(one.get("what", "")).lower()
    ]
    return frozenset(claim.value for claim in claims if claim is not None)
