"""Keys that this node's images need, asked of the head when they are needed: over TLS, by the
session, and kept nowhere.

A connection of its own for each, not the link's: it is the worker that waits for it.
"""

from __future__ import annotations

import base64

from layercake.base.text import parse_json
from layercake.kraken.errors import OperationFailed, Refused, Unreachable
from layercake.kraken.wire import bearer
from minos.agent.head_link.connection import HeadConnection
from minos.agent.state import Config, SessionFile


class SecretClient:
    """Asks for keys by their names."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sessions = SessionFile(config.run)

    def __call__(self, name: str) -> bytes:
        """The key of an image. Raises Refused, Unreachable, OperationFailed; none of them tells
        it."""
        return self._get(name, f"secrets/{name}")

    def of_disks(self, layout: str) -> bytes:
        """The key of a layout of the node's disks. Raises as for images."""
        return self._get(f"of layout {layout}", f"disk-key/{layout}")

    def _get(self, name: str, path: str) -> bytes:
        config = self._config
        session = self._sessions.load(self._config)
        if session is None:
            raise Unreachable(f"cannot get secret {name}: this node has not joined")
        headers = {"Authorization": bearer(session.key, config.node_bytes, session.number)}
        connection = HeadConnection(config, session)
        try:
            status, answer = connection.request("GET", f"/node/v1/{path}", headers)
        finally:
            connection.close()
        if status == 403:
            raise Refused(
                f"cannot get secret {name}: the head says that nothing of this node needs it"
            )
        if status != 200:
            raise OperationFailed(
                f"cannot get secret {name}: the head answers {status}", hint="see the head's log"
            )
        try:
            return base64.b64decode(parse_json(answer)["key"], validate=True)
        except (ValueError, KeyError, TypeError):
            raise OperationFailed(
                f"cannot get secret {name}: the head's answer holds no key"
            ) from None
