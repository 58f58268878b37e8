"""Content that a request of the head's is about, fetched over TLS by the session when it is needed.

A connection of its own for each, not the link's: that one goes on meanwhile.
"""

from __future__ import annotations

import hashlib

from layercake.kraken.errors import OperationFailed, Unreachable
from layercake.kraken.wire import bearer
from minos.agent.head_link.connection import HeadConnection
from minos.agent.state import Config, SessionFile


class ContentClient:
    """Fetches what belongs to requests."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sessions = SessionFile(config.run)

    def __call__(self, digest: str) -> bytes:
        """The content with this BLAKE2b digest. Raises Unreachable, OperationFailed."""
        config = self._config
        session = self._sessions.load(config)
        if session is None:
            raise Unreachable("cannot fetch the file: this node has not joined")
        headers = {"Authorization": bearer(session.key, config.node_bytes, session.number)}
        connection = HeadConnection(config, session)
        try:
            status, data = connection.request("GET", f"/node/v1/content/{digest}", headers)
        finally:
            connection.close()
        if status != 200:
            raise OperationFailed(f"cannot fetch the file: the head answers {status}")
        if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
            raise OperationFailed("cannot fetch the file: it did not come whole")
        return data
