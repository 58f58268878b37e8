"""The boot medium that BMCs put into their virtual drives: who may fetch it, from where, and for
how long.

It is the image of `layercake boot-media`: the same for all nodes, with nothing of one node and no
secret in it. All the same it is there for nobody but the BMC that was told its ticket, and only
until the node has booted: the socket is open while a ticket is out. BMCs are on a network of their
own, so each is given the address of ours that it is reached from.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.kraken.errors import InputError, OperationFailed
from layercake.moduleapi.web import WebServer, known
from powerman.driver import unreachable

FILE = "boot-media.img"
"""The image in the head's data directory."""
NAME = "layercake.iso"
"""What it is called in the URL, and so in the drive: some BMCs take no name that ends otherwise."""
LIMITS = Limits(each=16, strangers=256, known=16, most=4096, per_s=2.0, burst=20.0)
_TICKET_BYTES = 16


@dataclass(slots=True)
class _Loan:
    """A ticket that is out: who for, on which address, and who is told of the first fetch."""

    node: str
    address: str
    told: Callable[[str], None] | None


def is_ours(image: object) -> bool:
    """Whether what a virtual drive holds is a medium of a head. `image` is the Image or ImageName
    of a Redfish VirtualMedia."""
    try:
        return isinstance(image, str) and urlsplit(image.strip()).path.rpartition("/")[2] == NAME
    except ValueError:
        return False


class MediumServer:
    """Lends the medium to BMCs. `file` is the image, `port` the TCP port, 0 for any."""

    def __init__(self, file: Path, port: int) -> None:
        self._file = file
        self._port = port
        self._loans: dict[str, _Loan] = {}
        self._servers: dict[str, WebServer] = {}
        self._turn = asyncio.Lock()

    async def lend(self, node: str, bmc: str, told: Callable[[str], None]) -> str:
        """The URL under which a node's BMC (its own URL is `bmc`) may fetch the medium until
        `give_back`; `told` gets a line at the first fetch. Raises InputError without a medium,
        Unreachable without a way to the BMC, OperationFailed."""
        if not self._file.is_file():
            raise InputError(
                f"cannot insert the boot medium: {self._file} is not there",
                hint=f"`layercake boot-media {self._file}` makes it",
            )
        address = await _facing(bmc)
        async with self._turn:
            server = self._servers.get(address) or await self._open(address)
            ticket = secrets.token_urlsafe(_TICKET_BYTES)
            self._loans[ticket] = _Loan(node, address, told)
            await self._retain_loans(lambda key, loan: loan.node != node or key == ticket)
        host = f"[{address}]" if ":" in address else address
        return f"http://{host}:{server.port}/media/{ticket}/{NAME}"

    def ticket(self, node: str) -> str:
        """The ticket that a node's BMC has, "" if none."""
        return next((ticket for ticket, loan in self._loans.items() if loan.node == node), "")

    async def give_back(self, node: str) -> None:
        """The node's BMC may fetch no more; the socket is closed when nobody may."""
        async with self._turn:
            await self._retain_loans(lambda _, loan: loan.node != node)

    async def close(self) -> None:
        """Nobody may fetch any more."""
        async with self._turn:
            await self._retain_loans(lambda *_: False)

    async def _retain_loans(self, wanted: Callable[[str, _Loan], bool]) -> None:
        self._loans = {ticket: loan for ticket, loan in self._loans.items() if wanted(ticket, loan)}
        for address in self._servers.keys() - {loan.address for loan in self._loans.values()}:
            await self._servers.pop(address).close()

    async def _open(self, address: str) -> WebServer:
        app = web.Application(middlewares=[_plain_refusals], client_max_size=1024)
        app.router.add_get(f"/media/{{ticket}}/{NAME}", self._send)
        server = WebServer(app, LIMITS, handler_cancellation=True)
        try:
            await server.open(*tcp_listener.bound_sockets([address], self._port))
        except OSError as error:
            await server.close()
            raise OperationFailed(
                f"cannot lend the boot medium on {address} port {self._port}: {error.strerror}",
                hint="the setting power.media_port chooses another port",
            ) from None
        self._servers[address] = server
        return server

    async def _send(self, request: web.Request) -> web.StreamResponse:
        loan = self._loans.get(request.match_info["ticket"])
        if loan is None or not self._file.is_file():
            raise web.HTTPNotFound(text="no such medium\n")
        known(request, loan.node)
        if loan.told is not None and request.method == "GET":
            reporter = loan.told
            loan.told = None
            reporter(f"{request.remote} fetches the boot medium")
        return web.FileResponse(
            self._file,
            chunk_size=1 << 20,
            headers={"Content-Type": "application/octet-stream", "Cache-Control": "no-store"},
        )


async def _facing(bmc: str) -> str:
    """The address of this machine that a BMC is reached from. Raises Unreachable."""
    url = urlsplit(bmc)
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            url.hostname, url.port or 443, type=socket.SOCK_DGRAM
        )
        family, _, _, _, where = addresses[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # UDP: nothing is sent
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise unreachable(bmc, error.strerror or str(error)) from None


@web.middleware
async def _plain_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What is not there is told in one line, whatever was asked for."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        if refusal.status in (404, 405):
            raise web.HTTPNotFound(text="no such medium\n") from None
        raise
