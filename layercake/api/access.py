"""Who lets people in over the network: what the doors of the API need of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from layercake.api.caller import Caller
from layercake.kraken.errors import Refused


class NotKnown(Refused):
    """Nobody knows who asks."""


class Access(Protocol):
    """Knows callers, and records what they do."""

    async def caller(self, request: web.Request) -> Caller:
        """Who sends a request over the network. Raises NotKnown, Refused, InputError."""

    def greet(self, request: web.Request) -> None:
        """Gives a request for a file of the dashboard its sender's own place, if it has one."""

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begins a session. Raises as `caller`."""

    def is_revoked(self, token: str) -> bool:
        """Whether a token that let somebody in, by its id, was revoked since."""

    def listen(self, ended: Callable[[str], None]) -> None:
        """Has `ended` told the id of each token and session that ends."""

    def opened(self, port: int) -> None:
        """The network is served on this port."""

    async def begin(self, caller: Caller, request: str, body: Any) -> int:
        """Records a change before it is made; the number of the record. Raises OperationFailed."""

    def end(self, number: int, status: int, error: str) -> None:
        """Records what became of a change, within half a second."""


class NoAccess:
    """Lets nobody in: of a head without access. Its socket is open to who may use that."""

    async def caller(self, request: web.Request) -> Caller:
        """See Access."""
        raise NotKnown("cannot serve this: this head has no access over the network")

    def greet(self, request: web.Request) -> None:
        """See Access."""

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """See Access."""
        raise NotKnown("cannot sign in: this head has no access over the network")

    def is_revoked(self, token: str) -> bool:
        """See Access."""
        return True

    def listen(self, ended: Callable[[str], None]) -> None:
        """See Access."""

    def opened(self, port: int) -> None:
        """See Access."""

    async def begin(self, caller: Caller, request: str, body: Any) -> int:
        """See Access."""
        return 0

    def end(self, number: int, status: int, error: str) -> None:
        """See Access."""
