"""The join: a node trades the token of its boot for a session."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from aiohttp import web
from msgspec.structs import replace

from layercake.agents.https.authentication import WEIGHT
from layercake.agents.https.document import DesiredDocument, DocumentPart
from layercake.agents.https.routes import NO_STORE, NodeRoute, OpenRoute, json_body
from layercake.agents.joining import Claim, Joining, claim_of
from layercake.agents.pki import Authority
from layercake.agents.reports import set_name
from layercake.agents.sync import Sync
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Session, Store, Trust
from layercake.fleet.table import Table
from layercake.kraken.converge import Discovered
from layercake.moduleapi.web import known

MAX_CLAIM = 16384
"""Bytes of a claim."""


class JoinCheck(Protocol):
    """What a node may have to show before it joins."""

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """What a node is answered that has to show something first, None for one that may join.
        Raises Refused."""

    def passed(self, record: Record, claim: Claim) -> bool:
        """Whether this boot has shown it; what it showed counts for one join."""


class JoinApi:
    """The routes by which sessions begin and are kept: /node/v1/join and /node/v1/trust. `serves`
    gives the head's address for a node, `welcome` is what else its answer says."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        joining: Joining,
        sync: Sync,
        table: Table,
        authority: Authority,
        document: DesiredDocument,
        check: JoinCheck,
        serves: Callable[[str], str],
        welcome: Sequence[DocumentPart],
    ) -> None:
        self._store = store
        self._desire = desire
        self._joining = joining
        self._sync = sync
        self._table = table
        self._authority = authority
        self._document = document
        self._check = check
        self._serves = serves
        self._welcome = welcome

    def routes(self) -> list[NodeRoute | OpenRoute]:
        """The routes."""
        return [
            OpenRoute("POST", "/node/v1/join", self._join),
            NodeRoute("GET", "/node/v1/trust", self._trust),
        ]

    async def _join(self, request: web.Request) -> web.Response:
        body = await json_body(request, MAX_CLAIM)
        record, claim = claim_of(self._store, body, request.remote or "")
        # An older agent does not say which boot set and agent it is of.
        boot, agent = (set_name(body.get(key)) for key in ("boot", "agent"))
        if (first := await self._check.before(record, claim, body)) is not None:
            return first
        async with self._desire.transaction(revises=False) as transaction:
            session = dataclasses.replace(
                self._joining.claim(record, claim),
                mutual=body.get("mutual") is True,
                quoted=self._check.passed(record, claim),
            )
            transaction.after(self._joining.spend, record)
            transaction.after(self._sync.forget, record)
            transaction.change(record, partial(_begin_session, session, boot, agent))
            facts = {"boot_id": session.boot_id, "mac": claim.mac, "version": body["version"]}
            transaction.event(
                record, events.NODE_JOINED, f"joined from {request.remote}", data=facts
            )
            transaction.post(
                record, Discovered({**self._table.alive, "run": "INIT"}, "the node has joined")
            )
        known(request, record.node.id, WEIGHT)
        return web.json_response(self._answer(record, session))

    def _answer(self, record: Record, session: Session) -> dict[str, Any]:
        timers = self._sync.timers
        answer: dict[str, Any] = {
            "session": session.number,
            "key": base64.b64encode(session.key).decode(),
            "epoch": self._store.epoch,
            "layout": record.planner.layout.to_wire(),
            "hello_s": timers.hello_s,
            "dead_s": timers.dead_s,
            "sync": f"{self._serves(record.node.id)}:{timers.port}",
            "desired": self._document.of(record),
            "tls": self._authority.issue(record.node.id, session.number),
            "certificate": 1,
            "mutual": session.mutual,
            "mutations": [m.to_wire() for m in record.planner.mutations],
            "traits": record.planner.traits,
        }
        for part in self._welcome:
            answer |= part(record)
        return answer

    async def _trust(self, record: Record, request: web.Request) -> web.Response:
        """The authorities that the node shall trust, and its next certificate."""
        number = record.session.number if record.session else 0
        return web.json_response(
            {
                "authorities": self._authority.trusted.read_text(),
                "certificate": record.trust.certificate,
                "tls": self._authority.issue(record.node.id, number),
            },
            headers=NO_STORE,
        )


def _begin_session(session: Session, boot: str, agent: str, record: Record) -> None:
    """The node has been booted: what was heard of it before counts no more."""
    record.boots = replace(record.boots, runs=boot, agent_runs=agent)
    record.trust = Trust(at=session.joined)
    record.session = session
    record.last_seen = None
    record.address = None
    record.acked = 0
    record.running = ()
    record.staged = frozenset()
    record.stage_error = ""
    record.unhealthy = ""
    record.containers = ()
    record.api_port = 0
    record.interfaces = ()
