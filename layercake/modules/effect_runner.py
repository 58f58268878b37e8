"""Carries out what the engine decides: mutations are begun by the modules, and changes are told."""

from __future__ import annotations

from collections.abc import Callable

from layercake.agents.joining import Joining
from layercake.fleet.store import Record
from layercake.modules.boot_timeouts import BootTimeouts
from layercake.modules.dispatch import Dispatcher
from layercake.modules.notifier import ModuleNotifier


class EffectRunner:
    """Carries out what the engine decides (engine.EffectRunner)."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        notifier: ModuleNotifier,
        joining: Joining,
        patience: BootTimeouts,
    ) -> None:
        self.begin: Callable[[Record, str, int, float], None] = self._begin
        self.cancel = dispatcher.cancel
        self._dispatcher = dispatcher
        self._teller = notifier
        self._joining = joining
        self._patience = patience

    def _begin(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """Begins an attempt at a mutation, which a node that is known may have less time for."""
        self._dispatcher.start(
            record, mutation, attempt, self._patience.begins(record, mutation, attempt, timeout)
        )

    def changed(self, record: Record, before: int) -> None:
        """The discovered state of a node changed. With its power goes its session."""
        self._patience.changed(record, before)
        if record.value("power") == "OFF":
            self._joining.end(record)
        self._teller.state(record, before)
