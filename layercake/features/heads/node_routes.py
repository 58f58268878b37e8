"""What other heads of the site ask, the files that all of them share; and machines that are to
become one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from aiohttp import web

from layercake.agents.https.routes import NO_STORE, OpenRoute
from layercake.agents.pki import Authority
from layercake.base.text import parse_json
from layercake.features.heads.joining import AUTHORITY, JOIN, MOST_BYTES, JoinRequest
from layercake.features.heads.membership import Membership
from layercake.heads.consoles.copies import CHANGED, PIECES
from layercake.heads.consoles.pieces import (
    DIRECTORY,
    MOST_WANTS,
    Changed,
    CopyState,
    nodes_in,
    pieces,
)
from layercake.heads.copying import FILES, FileCopies
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.web import body_of, known
from layercake.modules.calls import AskModule
from minos.agent.head_link.trust import HEAD_NAME

_BYTES = "application/octet-stream"
_WANTS_BYTES = 512 << 10
WRITTEN = "console.written"


def is_head(request: web.Request) -> bool:
    """Whether a request comes from a head of the site, by its certificate, which the site's
    authority has made."""
    transport = request.transport
    found = transport.get_extra_info("peercert") if transport is not None else None
    names = [value for part in (found or {}).get("subject", ()) for _, value in part]
    return names == [HEAD_NAME]


def let_in(request: web.Request) -> None:
    """Raises Refused for who is no head."""
    if not is_head(request):
        raise Refused("cannot hand out files of the heads: not with a head's certificate")
    known(request, f"head {request.remote}")


class FileRequests:
    """Hands the shared files out, all of them and secret ones too, to heads and to nobody else."""

    def __init__(self, data_dir: Path, files: FileCopies) -> None:
        self._data_dir = data_dir
        self._files = files

    def routes(self) -> list[OpenRoute]:
        """The routes."""
        return [OpenRoute("GET", FILES, self._all), OpenRoute("GET", f"{FILES}/one", self._one)]

    async def _all(self, request: web.Request) -> web.StreamResponse:
        """Which files there are."""
        let_in(request)
        manifest = self._files.manifest
        if manifest is None or self._files.lacks:
            raise NotFound("cannot hand out files: this head does not have all of them")
        data = await asyncio.to_thread(msgspec.json.encode, manifest)
        return web.Response(body=data, content_type="application/json", headers=NO_STORE)

    async def _one(self, request: web.Request) -> web.StreamResponse:
        """One of them, as it was listed."""
        let_in(request)
        query = request.query
        found = self._files.entry(query.get("path", ""), query.get("sha256", ""))
        if found is None:
            raise NotFound("cannot hand out the file: it is no such file any more")
        path = self._data_dir / found.path
        return web.FileResponse(path, headers={"Content-Type": _BYTES, **NO_STORE})


class ConsoleRequests:
    """Hands the logs of consoles out to heads, and to nobody else; `ask` asks the module that
    writes them."""

    def __init__(self, data_dir: Path, ask: AskModule) -> None:
        self._directory = data_dir / DIRECTORY
        self._ask = ask

    def routes(self) -> list[OpenRoute]:
        """The routes."""
        return [OpenRoute("GET", CHANGED, self._changed), OpenRoute("POST", PIECES, self._pieces)]

    async def _changed(self, request: web.Request) -> web.StreamResponse:
        """Which logs have changed."""
        let_in(request)
        since = request.query.get("since", "")[:64]
        try:
            found = await self._ask(WRITTEN, {"since": since})
        except NotFound:  # the site's own module has no consoles
            found = {"now": "", "names": []}
        names = found["names"]
        if names is None:
            listed = await asyncio.to_thread(nodes_in, self._directory)
            changed = Changed(str(found["now"]), listed, True)
        else:
            changed = Changed(str(found["now"]), [str(name) for name in names], False)
        data = await asyncio.to_thread(msgspec.msgpack.encode, changed)
        return web.Response(body=data, content_type=_BYTES, headers=NO_STORE)

    async def _pieces(self, request: web.Request) -> web.StreamResponse:
        """What comes after what the other head has of them."""
        let_in(request)
        try:
            body = await body_of(request, _WANTS_BYTES)
            wants = msgspec.msgpack.decode(body, type=list[CopyState])
        except (msgspec.MsgspecError, ValueError) as error:
            raise InputError(f"cannot hand out logs of consoles: {error}") from None
        found = await asyncio.to_thread(pieces, self._directory, wants[:MOST_WANTS])
        data = msgspec.msgpack.encode(found)
        return web.Response(body=data, content_type=_BYTES, headers=NO_STORE)


class JoinRequests:
    """Takes machines in that were invited."""

    def __init__(self, membership: Membership, authority: Authority) -> None:
        self._membership = membership
        self._authority = authority

    def routes(self) -> list[OpenRoute]:
        """The routes."""
        return [OpenRoute("GET", AUTHORITY, self._authorities), OpenRoute("POST", JOIN, self._join)]

    async def _authorities(self, request: web.Request) -> web.StreamResponse:
        """What the head's certificate can be checked by; who has a token knows its digest."""
        return web.Response(body=self._authority.trusted.read_bytes())

    async def _join(self, request: web.Request) -> web.StreamResponse:
        try:
            body = parse_json(await body_of(request, MOST_BYTES))
            asked = msgspec.convert(body, JoinRequest)
        except (msgspec.MsgspecError, ValueError) as error:
            raise InputError(f"cannot join: {error}") from None
        answer = await self._membership.join(asked, request.remote or "")
        return web.Response(
            body=msgspec.json.encode(answer), content_type="application/json", headers=NO_STORE
        )
