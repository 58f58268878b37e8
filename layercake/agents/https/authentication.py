"""Whose request it is: the node whose session a bearer credential and the connection's certificate
belong to."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re

from aiohttp import web

from layercake.agents.pki import name_of
from layercake.base.text import whole_number
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import WireError
from layercake.kraken.wire import EPOCH_HEADER, MOST_EPOCHS, check_bearer, node_text, peek_bearer
from layercake.moduleapi.web import known, shown

log = logging.getLogger("layercake.nodes")
_EPOCH = re.compile(rb"\nlayercake-epoch:[\t ]*([0-9]{1,10})[\t ]*(?:\r|$)", re.IGNORECASE)
WEIGHT = 5.0
"""What a request of a node counts at the door: twenty a second are a lot for it."""


class SessionAuthenticator:
    """Checks the credentials of joined nodes. None is served that follows another of the `heads` by
    now."""

    def __init__(self, store: Store, heads: SiteHeads) -> None:
        self._store = store
        self._heads = heads

    def node_of_request(self, request: web.Request) -> Record:
        """The node that asks. Raises HTTPUnauthorized, HTTPServiceUnavailable."""
        record = self.node_of_header(request.headers.get("Authorization", ""), request.transport)
        if record is None:
            raise web.HTTPUnauthorized(
                text=json.dumps({"error": "cannot serve this: not the session of a joined node"})
            )
        known(request, record.node.id, WEIGHT)
        if self._outdated(request.headers.get(EPOCH_HEADER, "")):
            why = "cannot serve this: another head of the site acts by now"
            raise web.HTTPServiceUnavailable(text=json.dumps({"error": why}))
        return record

    def outdated(self, fields: bytes) -> bool:
        """Whether a node whose request has these header fields follows another head."""
        found = _EPOCH.search(fields)
        return found is not None and self._outdated(found[1].decode())

    def _outdated(self, epoch: str) -> bool:
        return self._heads.outdated(whole_number(epoch, MOST_EPOCHS) or 0)

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
