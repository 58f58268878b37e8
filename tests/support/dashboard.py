"""A head with its API on TLS and on its socket, nodes that a test makes what it wants of, and a
Chromium that looks at it."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, async_playwright

from layercake.agents import pki
from layercake.api.server import Api
from tests.support.api import token
from tests.support.world import World

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)


@functools.cache
def _authority() -> Path:
    """An authority and a server's certificate that all heads of these tests have: so one browser
    trusts them all."""
    place = Path(tempfile.mkdtemp(prefix="lcpki"))
    atexit.register(shutil.rmtree, place)
    pki.create(place, "127.0.0.1")
    return place


def certify(folder: Path) -> None:
    """Gives a head that authority and certificate."""
    shutil.copytree(_authority(), folder / "pki")


def spki(place: Path) -> str:
    """What Chromium is told of a server's key, in whose certificate it shall trust, as if somebody
    had imported the authority. If errors of certificates are ignored it makes two connections for
    each request, which the door takes for an attack."""
    key = x509.load_pem_x509_certificate((place / "server.pem").read_bytes()).public_key()
    text = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(hashlib.sha256(text).digest()).decode()


def inventory(count: int, *, racks: int = 4) -> str:
    """So many nodes in racks, each a domain, with a label."""
    lines = [
        "defaults: {images: []}",
        f"groups: {{{', '.join(f'rack{i}: {{domain: true}}' for i in range(racks))}}}",
        "nodes:",
    ]
    lines += [
        f'  n{i:02d}: {{mac: "52:54:00:00:{i >> 8:02x}:{i & 255:02x}", ip: '
        f"10.1.{i >> 8}.{i & 255}, "
        f"labels: {{row: r{i % 2}}}, groups: [rack{i * racks // count}], "
        f"bmc: {{driver: ipmi, address: 10.2.{i >> 8}.{i & 255}}}}}"
        for i in range(count)
    ]
    return "\n".join(lines)


class Site:
    """A head that serves, and what a test does to it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.world.settings = msgspec.structs.replace(
            world.settings, socket=str(folder / "api.sock")
        )
        self.api: Api | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"https://127.0.0.1:{self.port}/dashboard/"

    async def start(self) -> None:
        """The head begins to serve, on the port that it had before."""
        settings = msgspec.structs.replace(self.world.settings, api_port=self.port)
        self.world.head.settings = settings
        self.api = self.world.head.api()
        await self.api.start()
        self.port = self.api.port
        self.world.head.settings = msgspec.structs.replace(settings, api_port=self.port)

    async def stop(self) -> None:
        """It serves nobody any more."""
        if self.api is not None:
            await self.api.stop()
            self.api = None

    async def restart(self) -> None:
        """It ends, and another begins over the same directory, at the same port."""
        await self.stop()
        await self.world.restart()
        await self.start()

    async def token(
        self,
        name: str,
        role: str,
        *groups: str,
        seconds: float | None = None,
        may_exec: bool = False,
    ) -> str:
        """A new token."""
        found = await token(
            self.world.head, name, role, *groups, seconds=seconds, may_exec=may_exec
        )
        return found["Authorization"].removeprefix("Bearer ")

    def up(self, *names: str) -> None:
        """Nodes say that all is well with them."""
        for name in names:
            if self.world.node(name).session is None:
                self.world.attach(name)
            self.world.send(self.world.hello(name))


@contextlib.asynccontextmanager
async def serving(nodes: str, now: float | None = None) -> AsyncIterator[Site]:
    """A head over these nodes; away afterwards. `now`: what its clock shows, in seconds since the
    epoch."""
    folder = Path(tempfile.mkdtemp(prefix="lcd"))
    certify(folder)
    site = Site(World(folder), folder)
    site.world.clock.now = now or site.world.clock.now
    try:
        site.world.open()
        await site.world.ops.inventory.apply(nodes, "rack.yaml", None, True)
        await site.start()
        yield site
    finally:
        await site.stop()
        await site.world.close_head()
        site.world.client.close()
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def chromium(place: Path | None = None) -> AsyncIterator[Browser]:
    """Debian's Chromium, with a profile of its own. It trusts the server's certificate in `place`,
    that of these tests without."""
    async with async_playwright() as play:
        trusted = f"--ignore-certificate-errors-spki-list={spki(place or _authority())}"
        browser = await play.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, trusted])
        try:
            yield browser
        finally:
            await browser.close()


class Look:
    """A page that looks at a head, and what its console said: a clean page says nothing."""

    def __init__(self, context: BrowserContext, page: Page, site: Site) -> None:
        self.context, self.page, self.site = context, page, site
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))

    async def sign_in(self, text: str, view: str = "#/", *, may_exec: bool = False) -> None:
        """Signs in by a token, and shows a view. `may_exec`: with the right exec."""
        await self.page.goto(self.site.url + view)
        await self.page.fill("#token", text)
        await self.page.set_checked("#exec", may_exec)
        await self.page.click("dialog button[type=submit]")
        await self.page.wait_for_selector("#link.live")

    async def view(self, view: str) -> None:
        """Shows a view."""
        await self.page.evaluate("view => { location.hash = view; }", view)

    def complaints(self) -> list[str]:
        """What the console said, without refusals of the head, which the page shows itself, and
        without a test's own doing."""
        fine = ("responded with a status of 4", "HTTP Authentication failed", "getImageData")
        return [text for text in self.said if not any(word in text for word in fine)]


@contextlib.asynccontextmanager
async def looking(
    browser: Browser, site: Site, *, size: ViewportSize = WIDE, dark: bool = False, **options: Any
) -> AsyncIterator[Look]:
    """A fresh browser profile with one page."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    context = await browser.new_context(viewport=size, color_scheme=scheme, **options)
    context.set_default_timeout(60_000)
    try:
        yield Look(context, await context.new_page(), site)
    finally:
        await context.close()
