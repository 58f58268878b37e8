"""The node's interfaces as the loop has them: nothing of what they need is imported on a node of
which none are wanted."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minos.agent.core import AgentCore
from minos.agent.state import Session
from minos.events import NETWORK_FAILED

if TYPE_CHECKING:
    from minos.agent.network.manager import InterfaceManager

RECORD = "network.json"
"""In the run directory: what is in force (manager.py)."""
FIRST_S = 15.0
"""How long the images wait for the interfaces at most."""


class LateNetwork:
    """`owner`: this machine's interfaces are ours, it runs minOS."""

    def __init__(self, core: AgentCore, *, owner: bool) -> None:
        self._core = core
        self._owner = owner
        self._record = Path(core.config.run, RECORD)
        self._manager: InterfaceManager | None = None
        self._session: Session | None = None
        self._wake = 0

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Wants what a document says. What goes wrong is told; the node does its work without. An
        older head says nothing: then all stays as it is."""
        section = document.get("interfaces")
        self._session = session
        if (
            section is None
            or not self._owner
            or (self._manager is None and not section and not self._recorded)
        ):
            return
        try:
            manager = self._manager or self._start()
            manager.set_desired(section)
            os.write(self._wake, b"x")
        except OSError as error:
            self._core.event(NETWORK_FAILED, f"the interfaces cannot be set: {error}")

    def head_restarted(self) -> None:
        """The head knows nothing of the interfaces."""
        if self._manager is not None:
            self._manager.tell_again()
            os.write(self._wake, b"x")

    def wait(self) -> None:
        """Returns when the interfaces are as far as they get, and after a while in any case. Not in
        the loop."""
        if self._manager is not None:
            self._manager.settled.wait(FIRST_S)

    @property
    def _recorded(self) -> bool:
        return self._record.exists()

    def _start(self) -> InterfaceManager:
        from minos.agent.network.start import start

        reader, self._wake = os.pipe()
        manager, run = start(
            self._core,
            self._current,
            reader,
            record=self._record,
            live=self._core.session is not None,
        )
        self._manager = manager
        threading.Thread(target=run, name="network", daemon=True).start()
        return manager

    def _current(self) -> Session:
        if self._session is None:
            raise AssertionError("want comes first")
        return self._session
