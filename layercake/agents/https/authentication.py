"""Whose request it is: the node whose session a bearer credential and the connection's certificate
belong to."""

from __future__ import annotations

import asyncio
import functools
import json
import logging

from aiohttp import web

from layercake.agents.pki import name_of
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import WireError
from layercake.kraken.wire import check_bearer, node_text, peek_bearer
from layercake.moduleapi.web import known, shown

log = logging.getLogger("layercake.nodes")
WEIGHT = 5.0
"""What a request of a node counts at the door: twenty a second are a lot for it."""


class SessionAuthenticator:
    """Checks the credentials of joined nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def node_of_request(self, request: web.Request) -> Record:
        """The node that asks. Raises HTTPUnauthorized."""
        record = self.node_of_header(request.headers.get("Authorization", ""), request.transport)
        if record is None:
            raise web.HTTPUnauthorized(
                text=json.dumps({"error": "cannot serve this: not the session of a joined node"})
            )
        known(request, record.node.id, WEIGHT)
        return record

    def node_of_header(self, header: str, transport: asyncio.BaseTransport | None) -> Record | None:
        """The node whose session somebody has a right to speak for by this header and the
        certificate of the connection."""
        try:
            node, number = peek_bearer(header)
            record = self._store.find(node_text(node))
            session = None if record is None else record.session
            if record is None or session is None or session.number != number:
                return None
            _genuine(header, session.key)
            if not session.mutual or name_of(record.node.id, number) in shown(transport):
                return record
        except WireError as error:
            log.debug("an unusable bearer: %s", error)
        return None


@functools.lru_cache(maxsize=16_384)
def _genuine(header: str, key: bytes) -> None:
    """Checks a credential, of which nodes show the same one each time. Raises WireError, each
    time."""
    check_bearer(header, key)
