"""What the head asks of modules: each call by the one that offers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from layercake.fleet.table import Table
from layercake.modules.host import ModuleHost

CALL_S = 20.0
"""Seconds that a module has to answer, unless more are given."""


class AskModule(Protocol):
    """Asks the module that offers a call. Raises NotFound if none does, Unreachable, or the
    module's own error."""

    async def __call__(
        self, call: str, params: Mapping[str, Any], timeout: float = CALL_S
    ) -> Any: ...


class ModuleCalls:
    """The calls of a head's modules."""

    def __init__(self, table: Table, host: ModuleHost) -> None:
        self._table = table
        self._host = host

    async def call(self, call: str, params: Mapping[str, Any], timeout: float = CALL_S) -> Any:
        """See AskModule. `timeout` is in seconds."""
        self._table.call(call)
        return await self._host.call(self._table.caller[call], call, params, timeout)
