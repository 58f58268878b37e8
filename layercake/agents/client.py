"""The head's way to a node's own API: TLS to the node and session that it means, with a credential
that only it can make.

Where the site has several heads, each request says in which epoch this one acts. A node that
follows a later one refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from layercake.agents.pki import Authority, name_of
from layercake.agents.sync import in_sync
from layercake.base.clock import Clock
from layercake.base.text import parse_json
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Record, Session
from layercake.kraken.errors import (
    HeadOutdated,
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Refused,
    Unreachable,
)
from layercake.kraken.wire import EPOCH_HEADER, TO_NODE, bearer
from layercake.moduleapi.tls_client import OutgoingConnections
from minos.agent.http.client import NO_CHECK_TIME

CONNECT_S = 15.0
"""Seconds for the connection, its TLS handshake too: a node whose processors are all at work takes
some."""
ANSWER_S = 30.0
"""Seconds that a node has to begin an answer, and to say all of an error. What follows comes for as
long as somebody reads it."""
MAX_ERROR = 65536
"""Bytes of an error that are read. A node may be anybody's by now."""


class NodeLink:
    """Asks nodes, as the one of the `heads` that this is."""

    def __init__(self, authority: Authority, heads: SiteHeads, clock: Clock) -> None:
        self._authority = authority
        self._heads = heads
        self._clock = clock

    def _context(self) -> ssl.SSLContext:
        """Trusts the head's authorities and shows the head's own certificate. Names are of one
        session, and a node's clock proves nothing: dates do not count."""
        context = ssl.create_default_context(cafile=str(self._authority.trusted))
        context.verify_flags |= NO_CHECK_TIME
        context.load_cert_chain(*self._authority.server)
        return context

    @contextlib.asynccontextmanager
    async def open(
        self,
        record: Record,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of a node, whose content is read as it comes. Raises Unreachable, InputError,
        Refused, HeadOutdated, OperationFailed."""
        url, session = _way_to(record, self._clock())
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        with _as_unreachable(record):
            connections = OutgoingConnections()
            # What a node packs is handed on as it is, and not unpacked here: a few bytes may stand
            # for very many.
            async with (
                contextlib.aclosing(connections),
                connections.session(timeout=timeout, auto_decompress=False) as client,
            ):
                async with asyncio.timeout(ANSWER_S):
                    response = await client.request(
                        method,
                        url + path,
                        headers=self._headers(record, session),
                        json=body,
                        params=query,
                        ssl=self._context(),
                        server_hostname=name_of(record.node.id, session.number),
                        allow_redirects=False,
                    )
                    if response.status >= 300:
                        error = await _failure(record, response)
                        if isinstance(error, HeadOutdated):
                            self._heads.outdated(error.epoch)
                        raise error
                async with response:
                    yield response

    def _headers(self, record: Record, session: Session) -> dict[str, str]:
        epoch = self._heads.epoch
        return {"Authorization": _credential(record, session)} | (
            {EPOCH_HEADER: str(epoch)} if epoch else {}
        )

    async def answers(self, record: Record) -> bool:
        """Whether a node's agent, in sync or not, still serves its TLS port under the session that
        it has. Any answer counts."""
        session = record.session
        address = record.address
        if session is None or address is None or not record.api_port:
            return False
        context = self._context()
        try:
            _, writer = await asyncio.open_connection(
                address[0],
                record.api_port,
                ssl=context,
                server_hostname=name_of(record.node.id, session.number),
            )
        except (OSError, ValueError):
            return False
        writer.transport.abort()
        return True


def _way_to(record: Record, now: float) -> tuple[str, Session]:
    """Where a node's API is, and the session that the node has. Raises Unreachable for a node that
    is not in sync, or serves none."""
    session = record.session
    address = record.address
    serves = in_sync(record, now) and record.api_port
    if not serves or session is None or address is None:
        raise Unreachable(
            f"cannot ask {record.name}: its agent is not in sync, or does not serve its API",
            hint=f"see `layercake node explain {record.name}`",
        )
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"https://{host}:{record.api_port}", session


def _credential(record: Record, session: Session) -> str:
    return bearer(session.key, uuid.UUID(record.node.id).bytes, session.number, TO_NODE)


@contextlib.contextmanager
def _as_unreachable(record: Record) -> Iterator[None]:
    """Raises Unreachable for what goes wrong between head and node."""
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unreachable(f"cannot ask {record.name}: {error or type(error).__name__}") from error


async def read_answer(record: Record, response: aiohttp.ClientResponse, most: int) -> bytes:
    """An answer to its end, or so many bytes of it. Raises Unreachable if that is not there in
    ANSWER_S seconds."""
    data = bytearray()
    with _as_unreachable(record):
        async with asyncio.timeout(ANSWER_S):
            while len(data) < most and (part := await response.content.read(most - len(data))):
                data += part
    return bytes(data)


async def _failure(record: Record, response: aiohttp.ClientResponse) -> LayercakeError:
    epoch: object = None
    try:
        said = parse_json(await read_answer(record, response, MAX_ERROR))
        text = str(said["error"])[:500]
        hint = str(said.get("hint") or "")[:200]
        epoch = said.get("epoch")
    except (ValueError, KeyError, TypeError, AttributeError):
        text = f"it answers {response.status}"
        hint = ""
    finally:
        response.close()
    if response.status == HTTPStatus.CONFLICT and type(epoch) is int:
        return HeadOutdated(f"{text} (says {record.name})", epoch=epoch, hint=hint)
    kind = {400: InputError, 403: Refused, 404: NotFound}.get(response.status, OperationFailed)
    return kind(f"{text} (says {record.name})", hint=hint)
