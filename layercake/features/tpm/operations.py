"""What people ask for of the TPMs of nodes: to see what was recorded and shown, to accept what was
shown last, to forget it."""

from __future__ import annotations

from typing import Any

from layercake.api.caller import said_by
from layercake.features.tpm import events
from layercake.features.tpm.evidence.log import Step
from layercake.features.tpm.manager import Tpms
from layercake.features.tpm.table import LAST
from layercake.features.tpm.views import tpm_view
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import NotFound


class NodeTpms:
    """Operations on TPMs."""

    def __init__(self, store: Store, desire: DesiredState, tpms: Tpms) -> None:
        self._store = store
        self._desire = desire
        self._tpms = tpms

    def all(self) -> list[dict[str, Any]]:
        """The TPMs of all nodes that are asked for theirs, or that have shown one."""
        found = (self._store.named(name) for name in self._store.names)
        return [
            self._view(record)
            for record in found
            if self._tpms.asks(record) or self._tpms.of(record).last is not None
        ]

    async def one(self, name: str) -> dict[str, Any]:
        """A node's TPM, with the event log that was shown last. Raises NotFound."""
        record = self._store.named(name)
        steps: tuple[Step, ...] = (await self._tpms.logs(record)).get(LAST, ())
        return {
            "tpm": self._view(record),
            "log": [
                {"register": s.register, "kind": s.kind, "digest": s.digest, "text": s.text}
                for s in steps
            ],
        }

    def _view(self, record: Record) -> dict[str, Any]:
        return tpm_view(record, self._tpms)

    async def accept(self, text: str, by: str) -> list[str]:
        """What nodes have shown last is right; returns those that have shown something."""
        async with self._desire.transaction(revises=False) as transaction:
            done = await self._tpms.accept(transaction, self._store.select(text))
            for record, shown in done:
                transaction.event(
                    record,
                    events.ACCEPTED,
                    f"TPM {shown.ek[:16]} and its registers, by {said_by(by)}",
                    data={"ek": shown.ek, "boot": shown.boot},
                )
        return [record.name for record, _ in done]

    async def forget(self, name: str, by: str) -> str:
        """Forgets a node's TPM. Raises NotFound if nothing is known of one."""
        record = self._store.named(name)
        known = self._tpms.of(record)
        if not known.ek and known.last is None:
            raise NotFound(f"cannot forget the TPM of {name}: nothing is known of one")
        await self._tpms.forget(record)
        self._store.event(
            record,
            events.FORGOTTEN,
            f"TPM {known.ek[:16] or 'that was not recorded'}, by {said_by(by)}",
        )
        return name
