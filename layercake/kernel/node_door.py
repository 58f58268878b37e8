"""What nodes ask of the head over the network, made of the kernel's own parts and of features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from layercake.agents.https.api import NodeApi
from layercake.agents.https.authentication import SessionAuthenticator
from layercake.agents.https.document import DesiredDocument
from layercake.agents.https.join import JoinApi
from layercake.agents.intake import NodeEventIntake
from layercake.fleet.store import Record
from layercake.kernel.kernel import Kernel

NOT_WHILE_HELD = ("disks", "uinit")
"""What a node is not told of while it is being released (minos.disks, minos.tasks)."""


class NodeDoor:
    """Serves nodes. `document` is what they are told, `intake` takes what they report."""

    def __init__(self, kernel: Kernel) -> None:
        self._table = kernel.table
        self._authority = kernel.authority
        features = kernel.running
        self.intake = NodeEventIntake(kernel.store, features.hears())
        self.document = DesiredDocument(
            (
                self._of_modules,
                features.document,
                kernel.requests.document,
                self._trust,
                kernel.heads.document,
            )
        )
        join = JoinApi(
            kernel.store,
            kernel.desire,
            kernel.joining,
            kernel.sync,
            kernel.table,
            kernel.authority,
            self.document,
            features,
            kernel.serves,
            (features.welcome,),
        )
        self._api = NodeApi(
            SessionAuthenticator(kernel.store, kernel.heads),
            self.document,
            kernel.requests,
            self.intake,
            kernel.sync,
            (*join.routes(), *features.node_routes()),
        )
        self.routes = self._api.routes
        self.quick = self._api.quick

    def _of_modules(self, record: Record) -> dict[str, Any]:
        """A node that is being released mounts nothing, and begins no task."""
        told = self._table.told_to(record.node)
        return told if record.held is None else _without(told, NOT_WHILE_HELD)

    def _trust(self, record: Record) -> dict[str, Any]:
        certificate = record.trust.certificate
        return {"trust": {"authorities": self._authority.mark, "certificate": certificate}}


def _without(told: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key not in keys}
