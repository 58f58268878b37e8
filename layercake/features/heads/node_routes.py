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
from layercake.heads.copying import FILES, FileCopies
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.web import body_of, known
from minos.agent.head_link.trust import HEAD_NAME

_BYTES = "application/octet-stream"


def is_head(request: web.Request) -> bool:
    """Whether a request comes from a head of the site, by its certificate, which the site's
    authority has made."""
    transport = request.transport
    found = transport.get_extra_info("peercert") if transport is not None else None
    names = [value for part in (found or {}).get("subject", ()) for _, value in part]
    return names == [HEAD_NAME]


class FileRequests:
    """Hands the shared files out, all of them and secret ones too, to heads and to nobody else."""

    def __init__(self, data_dir: Path, files: FileCopies) -> None:
        self._data_dir = data_dir
        self._files = files

    def routes(self) -> list[OpenRoute]:
        """The routes."""
        return [OpenRoute("GET", FILES, self._all), OpenRoute("GET", f"{FILES}/one", self._one)]

    def _let_in(self, request: web.Request) -> None:
        """Raises Refused for who is no head."""
        if not is_head(request):
            raise Refused("cannot hand out files of the heads: not with a head's certificate")
        known(request, f"head {request.remote}")

    async def _all(self, request: web.Request) -> web.StreamResponse:
        """Which files there are."""
        self._let_in(request)
        manifest = self._files.manifest
        if manifest is None or self._files.lacks:
            raise NotFound("cannot hand out files: this head does not have all of them")
        data = await asyncio.to_thread(msgspec.json.encode, manifest)
        return web.Response(body=data, content_type="application/json", headers=NO_STORE)

    async def _one(self, request: web.Request) -> web.StreamResponse:
        """One of them, as it was listed."""
        self._let_in(request)
        query = request.query
        found = self._files.entry(query.get("path", ""), query.get("sha256", ""))
        if found is None:
            raise NotFound("cannot hand out the file: it is no such file any more")
        path = self._data_dir / found.path
        return web.FileResponse(path, headers={"Content-Type": _BYTES, **NO_STORE})


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
