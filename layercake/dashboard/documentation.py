"""The documentation as a site, served below /docs/ to everybody: nothing of the installation is in
it.

Its files are read when they are asked for first, and kept; anew after another build. Only what was
in its directory then is served. The site has no script or style inside its pages (docs/strict.py),
so its policy allows none; and no script of it may ask anything of the head, with whose dashboard it
shares an origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web

from layercake.dashboard.pages import ASK, HEADERS, KINDS, File, answer, file_of
from layercake.documentation import INDEX, URL, site_directory
from layercake.moduleapi.web import open_to_all

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
KINDS_OF_SITE: Mapping[str, str] = {**KINDS, ".png": "image/png", ".txt": "text/plain"}
_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY}
_MISSING = (
    "The documentation was not built on this head: "
    "`make docs` in the clone that it runs from builds it.\n"
)


class DocumentationSite:
    """Serves the site. `greet` says of a request whose it is, if it is somebody's; `find` where the
    site is."""

    def __init__(
        self, greet: Callable[[web.Request], None], find: Callable[[], Path | None] = site_directory
    ) -> None:
        self._greet, self._find = greet, find
        self._built: tuple[Path, int] | None = None
        self._paths: Mapping[str, Path] = {}
        self._files: dict[str, File] = {}

    def routes(self) -> list[web.RouteDef]:
        """The routes: all below URL."""
        return [web.get(URL.rstrip("/"), self._home), web.get(URL + "{name:.*}", self._page)]

    async def _home(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": URL, "Cache-Control": ASK})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self._greet(request)
        await open_to_all(request)
        name = request.match_info["name"]
        if not name or name.endswith("/"):
            name += f"{INDEX}.html"
        if not await asyncio.to_thread(self._look):
            return web.Response(status=503, text=_MISSING, headers=_HEADERS)
        path = self._paths.get(name)
        if path is None:
            return web.Response(
                status=404, text=f"There is no such page. {URL} has all.\n", headers=_HEADERS
            )
        file = self._files.get(name)
        if file is None:
            try:
                file = await asyncio.to_thread(_read, path)
            except FileNotFoundError:  # it is being built anew
                return web.Response(status=503, text=_MISSING, headers=_HEADERS)
            self._files[name] = file
        return answer(request, file, ASK, _HEADERS)

    def _look(self) -> bool:
        """Whether there is a site; notices another build of it."""
        place = self._find()
        if place is None:
            return False
        built = place, (place / f"{INDEX}.html").stat().st_mtime_ns
        if built != self._built:
            self._paths = {
                path.relative_to(place).as_posix(): path
                for path in place.rglob("*")
                if path.suffix in KINDS_OF_SITE and path.is_file()
            }
            self._built, self._files = built, {}
        return True


def _read(path: Path) -> File:
    return file_of(KINDS_OF_SITE[path.suffix], path.read_bytes())
