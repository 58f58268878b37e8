"""Keeps iSCSI sessions logged in: a thread looks after them, from the first that is attached to the
last.

The kernel stops I/O when a connection breaks, and needs to be told when there is another one. Where
a target stays away the error is told once, and its return.
"""

from __future__ import annotations

import threading

from imageapi.events import DEVICE_BACK, DEVICE_LOST, EventSink
from imageapi.node.attach import iscsi
from imageapi.spec.objects import Spec
from layercake.kraken.errors import LayercakeError

PAUSE_S = 3.0
"""Seconds between two looks."""


class IscsiSessions:
    """The sessions that are wanted. Any thread may call."""

    def __init__(self, key: iscsi.Key, event: EventSink) -> None:
        self._key = key
        self._event = event
        self._wanted: dict[str, Spec] = {}
        self._away: set[str] = set()
        self._changed = threading.Condition()
        self._one = threading.Lock()
        """One login or logout at a time."""

        self._thread: threading.Thread | None = None

    def attach(self, name: str, spec: Spec) -> str:
        """The device of an attach object. Raises LayercakeError."""
        with self._one:
            device = iscsi.attach(spec, self._key)
        self.add(name, spec)
        return device

    def detach(self, name: str, spec: Spec) -> None:
        """Takes it away. Raises OperationFailed."""
        with self._changed:
            self._wanted.pop(name, None)
            self._changed.notify_all()
            if any(
                (other["target"], other["lun"]) == (spec["target"], spec["lun"])
                for other in self._wanted.values()
            ):
                return  # by another portal
        with self._one:
            iscsi.detach(spec)

    def add(self, name: str, spec: Spec) -> None:
        """Looks after the session of an attach object that is there."""
        with self._changed:
            self._wanted[name] = spec
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="iscsi", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(PAUSE_S)
                if not self._wanted:
                    self._thread = None
                    return
                wanted = {spec["target"]: spec for spec in self._wanted.values()}
            for spec in wanted.values():
                with self._one:
                    self.relogin(spec)

    def relogin(self, spec: Spec) -> None:
        """Logs in again where that is needed, and tells of what has changed."""
        session = iscsi.of(spec["target"])
        if session is None:
            return  # it is being taken away
        target = spec["target"]
        error = ""
        if session.state != iscsi.UP:
            try:
                iscsi.revive(spec, self._key)
            except LayercakeError as failure:
                error = str(failure)
        if error and target not in self._away:
            self._away.add(target)
            self._event(DEVICE_LOST, f"target {target} is away: {error}", target=target)
        elif not error and (target in self._away or session.state != iscsi.UP):
            self._away.discard(target)
            self._event(DEVICE_BACK, f"target {target} is logged in to again", target=target)
