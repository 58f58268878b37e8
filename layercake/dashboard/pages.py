"""The files of the dashboard, as they are served: to everybody, as they hold nothing of the site.

They are read once. All but the page itself are below a path that changes with any of them, so that
a browser may keep them for ever; the page names that path, and is asked for each time.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from layercake.moduleapi.web import open_to_all

PATH = "/dashboard/"
HERE = Path(__file__).parent / "web"
PAGE = "index.html"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
BINARY = frozenset({"image/png", "image/webp"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for "
    "'script'; trusted-types 'none'"
)
"""No script or style but our own files, and no text that becomes a part of the page (Trusted
Types)."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
FOR_EVER = "public, max-age=31536000, immutable"
ASK = "no-cache"
"""How long browsers keep a file: for ever, or until they have asked whether it is still the
same."""


@dataclass(frozen=True, slots=True)
class File:
    """A file: its content type, its bytes, the same compressed, and a mark of them."""

    kind: str
    plain: bytes
    packed: bytes
    mark: str


def files(folder: Path = HERE) -> tuple[str, Mapping[str, File]]:
    """The path below PATH that changes with any file, and the files by their names."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS
    }
    digest = hashlib.sha256(
        b"".join(name.encode() + b"\0" + data + b"\0" for name, data in found.items())
    ).hexdigest()[:16]
    found[PAGE] = found[PAGE].replace(b"VERSION", digest.encode())
    return digest, {name: file_of(KINDS[Path(name).suffix], data) for name, data in found.items()}


def file_of(kind: str, data: bytes) -> File:
    """A file of a content type with these bytes."""
    return File(
        kind, data, gzip.compress(data, 9, mtime=0), f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    )


class Pages:
    """Serves the dashboard's files. `greet` says of a request whose it is, if it is somebody's."""

    def __init__(self, greet: Callable[[web.Request], None]) -> None:
        self._version, self._files = files()
        self._greet = greet

    def routes(self) -> list[web.RouteDef]:
        """The routes: the page, and its files."""
        return [
            web.get("/", self._home),
            web.get(PATH.rstrip("/"), self._home),
            web.get(PATH, self._page),
            web.get(PATH + "{version}/{name:.+}", self._file),
        ]

    async def _home(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": PATH, "Cache-Control": ASK})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, self._files[PAGE], ASK)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if (
            request.match_info["version"] != self._version
            or name not in self._files
            or name == PAGE
        ):
            return web.Response(
                status=404, text="there is no such file; load the page anew\n", headers=HEADERS
            )
        return await self._answer(request, self._files[name], FOR_EVER)

    async def _answer(self, request: web.Request, file: File, keep: str) -> web.StreamResponse:
        self._greet(request)
        await open_to_all(request)
        return answer(request, file, keep)


def answer(
    request: web.Request, file: File, keep: str, headers: Mapping[str, str] = HEADERS
) -> web.StreamResponse:
    """The answer with a file, or that the browser has it. `keep` is one of FOR_EVER and ASK."""
    headers = {**headers, "Cache-Control": keep, "ETag": file.mark}
    if file.mark in (word.strip() for word in request.headers.get("If-None-Match", "").split(",")):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = (
        f"{file.kind}; charset=utf-8" if file.kind not in BINARY else file.kind
    )
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=file.packed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=file.plain, headers=headers)
