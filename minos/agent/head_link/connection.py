"""Requests to the head that acts: by TLS, and to the next head of the site where one does not
answer or says that it does not act."""

from __future__ import annotations

from collections.abc import Mapping

from layercake.kraken.errors import Unreachable
from layercake.kraken.wire import EPOCH_HEADER
from minos.agent.head_link.known_heads import Head, KnownHeads
from minos.agent.head_link.trust import to_head
from minos.agent.http.client import Connection, parse_url
from minos.agent.state import Config, Session

CONNECT_S = 1.0
"""Seconds that a head has to take a connection where there is another one to ask."""
NOT_ACTING = 503


class HeadConnection:
    """One connection, opened when it is needed. `heads` is where it is kept which head acts;
    without it, what is kept is only read. Raises InputError and OperationFailed like `to_head`."""

    def __init__(
        self, config: Config, session: Session | None, heads: KnownHeads | None = None
    ) -> None:
        self._own = heads
        self._heads = heads or KnownHeads(config)
        self._context = to_head(config, session)
        self._connection: Connection | None = None
        self._head: Head | None = None

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, bytes]:
        """A whole exchange: (status, body). Raises Unreachable or OperationFailed."""
        epoch = self._heads.epochs.highest
        sent = {**headers, **({EPOCH_HEADER: str(epoch)} if epoch else {})}
        failure: Unreachable | None = None
        answer = None
        for head in self._heads.in_turn():
            try:
                found = self._to(head).request(method, path, sent, body)
            except Unreachable as error:
                failure = failure or error
                continue
            if found[0] != NOT_ACTING:
                if self._own is not None:
                    self._own.act(head)
                return found
            answer = answer or found
        if answer is None:
            raise failure or Unreachable("cannot reach the head: none is known")
        return answer

    def _to(self, head: Head) -> Connection:
        if self._connection is None or self._head != head:
            self.close()
            wait = CONNECT_S if self._heads.several else None
            self._connection = Connection(parse_url(head.url), self._context, connect_timeout=wait)
            self._head = head
        return self._connection

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    def interrupt(self) -> None:
        """Ends a request that waits for a head which does not act any more. From any thread."""
        connection = self._connection
        if connection is not None and self._head != self._heads.in_turn()[0]:
            connection.interrupt()


def address_at(url: str, heads: list[Head]) -> list[str]:
    """The address of a content at one of the heads, at each of them, in turn. Another address stays
    as it is. Raises InputError."""
    found = parse_url(url)
    hosts = [parse_url(head.url).host for head in heads]
    if found.host not in hosts:
        return [url]
    return [found.at(host) for host in dict.fromkeys(hosts)]
