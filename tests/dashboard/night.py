"""What is seen of the worst night: the first screen at each width, in the light and in the dark,
the rack, and a terminal of 100 columns. `python -m tests.dashboard.night` writes the pictures of
docs/howto/half-the-rack-is-dark.md anew; tests/dashboard/test_night.py looks at the same."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize

from tests.bench.dashboard import Head, signed_in
from tests.docs import pictures
from tests.support.dashboard import certify, chromium

PLACE = pictures.PLACE / "night"
NODES = 10_000
HEIGHTS = {390: 844, 1280: 900, 1920: 1080, 3840: 2160}
"""How high windows of each width are, in pixels."""
COLUMNS = 100
_QUALITY = 70


class Night:
    """The head on which it happens, and its directory."""

    def __init__(self, directory: Path) -> None:
        certify(directory)
        self.directory = directory
        self.head = Head(directory, NODES, module="tests.bench.trouble")

    @property
    def socket(self) -> Path:
        """Where the head answers commands."""
        return self.directory / "api.sock"

    @contextlib.asynccontextmanager
    async def seen(self, browser: Browser, width: int, *, dark: bool) -> AsyncIterator[Page]:
        """The first screen in a window of that width; the page has nothing to complain of."""
        size = ViewportSize(width=width, height=HEIGHTS[width])
        async with signed_in(browser, self.head, size=size, dark=dark) as look:
            await look.page.goto(f"{self.head.url}/dashboard/")
            await look.page.wait_for_selector("#link.live")
            await look.page.wait_for_selector(".stopped-too")
            yield look.page
            assert look.complaints() == []


@contextlib.contextmanager
def night() -> Iterator[Night]:
    """The worst night, as long as it is looked at."""
    with tempfile.TemporaryDirectory(prefix="lcn") as folder:
        found = Night(Path(folder))
        try:
            yield found
        finally:
            found.head.end()


def name(width: int, *, dark: bool) -> str:
    """The file of a picture of the first screen."""
    return f"{width}-{'dark' if dark else 'light'}.webp"


async def picture(page: Page) -> bytes:
    """The whole page, as WebP."""
    link = await page.context.new_cdp_session(page)
    height = await page.evaluate("document.documentElement.scrollHeight")
    clip = {
        "x": 0,
        "y": 0,
        "width": await page.evaluate("innerWidth"),
        "height": height,
        "scale": 1,
    }
    answer = await link.send(
        "Page.captureScreenshot",
        {"format": "webp", "quality": _QUALITY, "clip": clip, "captureBeyondViewport": True},
    )
    return base64.b64decode(answer["data"])


def typed(of: Night) -> list[str]:
    """What is typed first, and what is said, on a terminal."""
    lines = []
    for words in ("status", "explain"):
        lines += [f"$ layercake {words}", *pictures.typed(of.socket, words, COLUMNS), ""]
    return lines[:-1]


async def main() -> None:
    """All pictures."""
    PLACE.mkdir(exist_ok=True)
    with night() as of:
        pictures.drawn(typed(of), "a third of the site is dark", "night/terminal", width=COLUMNS)
        async with chromium() as browser:
            for width in HEIGHTS:
                for dark in (False, True):
                    async with of.seen(browser, width, dark=dark) as page:
                        (PLACE / name(width, dark=dark)).write_bytes(await picture(page))


if __name__ == "__main__":
    asyncio.run(main())
