"""The documentation, served below /docs/ to everybody: nothing of the installation is in it.

It is served as a site; where none was built, as in a fresh clone, a page is its Markdown, at the
same URL. A file is read when it is asked for first, and kept until it changes. Only what is listed
in its directory is served. The site has no script or style inside its pages (docs/strict.py), so
its policy allows none; and no script of it may ask anything of the head, with whose dashboard it
shares an origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from layercake.dashboard.pages import ASK, HEADERS, KINDS, File, answer, file_of
from layercake.documentation import INDEX, URL, markdown_files, pages_directory, site_directory
from layercake.moduleapi.web import open_to_all

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action "
    "'self'"
)
KINDS_OF_SITE: Mapping[str, str] = {
    **KINDS,
    ".png": "image/png",
    ".webp": "image/webp",
    ".txt": "text/plain",
}
_KINDS = {**KINDS_OF_SITE, ".md": "text/plain"}
_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY}
_MISSING = (
    "The documentation is not on this head: `make docs` in the clone that it runs from builds it.\n"
)


@dataclass(frozen=True, slots=True)
class _Listing:
    """What is in a directory: the files that are served, by their names below URL, and its own
    directories, each with the time of its last change in ns."""

    place: Path
    paths: Mapping[str, Path]
    changed: Mapping[Path, int]

    def is_current(self) -> bool:
        """Whether no file was added or removed since."""
        try:
            return all(path.stat().st_mtime_ns == at for path, at in self.changed.items())
        except FileNotFoundError:
            return False


class DocumentationSite:
    """Serves the documentation. `greet` says of a request whose it is, if it is
    somebody's."""

    def __init__(self, greet: Callable[[web.Request], None]) -> None:
        self._greet = greet
        self._listing: _Listing | None = None
        self._files: dict[str, tuple[tuple[int, int], File]] = {}

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
        try:
            file = await asyncio.to_thread(self._file, name)
        except FileNotFoundError:  # there is none, or it is being built anew
            return web.Response(status=503, text=_MISSING, headers=_HEADERS)
        if file is None:
            return web.Response(
                status=404, text=f"There is no such page. {URL} has all.\n", headers=_HEADERS
            )
        return answer(request, file, ASK, _HEADERS)

    def _file(self, name: str) -> File | None:
        """A file by its name below URL; None if there is none of that name. Raises
        FileNotFoundError where there is no documentation."""
        path = self._list().get(name)
        if path is None:
            return None
        status = path.stat()
        mark = status.st_mtime_ns, status.st_size
        kept = self._files.get(name)
        if kept is None or kept[0] != mark:
            kept = mark, file_of(_KINDS[path.suffix], path.read_bytes())
            self._files[name] = kept
        return kept[1]

    def _list(self) -> Mapping[str, Path]:
        """The files that are served. Raises FileNotFoundError."""
        place = site_directory() or pages_directory()
        if place is None:
            raise FileNotFoundError
        listing = self._listing
        if listing is None or listing.place != place or not listing.is_current():
            directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
            changed = {path: path.stat().st_mtime_ns for path in directories}
            paths = _pages_in(place) if place == pages_directory() else _site_in(place)
            self._files = {}
            self._listing = _Listing(place, paths, changed)
            return paths
        return listing.paths


def _site_in(place: Path) -> Mapping[str, Path]:
    return {
        path.relative_to(place).as_posix(): path
        for path in place.rglob("*")
        if path.suffix in KINDS_OF_SITE and path.is_file()
    }


def _pages_in(place: Path) -> Mapping[str, Path]:
    return {f"{name}.html": path for name, path in markdown_files(place).items()}
