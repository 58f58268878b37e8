"""The worst night in a real Chromium and in a terminal: what is wrong stands on the first screen,
at each width, in the light and in the dark; nothing is cut off, and the pictures of it can be
made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, expect

from tests.dashboard import night as pictures
from tests.dashboard.night import COLUMNS, HEIGHTS, Night
from tests.docs.test_commands import parse
from tests.support import first_screen
from tests.support.bad_night import check, shown

pages = pytest.mark.asyncio(loop_scope="session")
MOST_PX = {390: 1700, 1280: 1100, 1920: 1100, 3840: 2160}
_BROKEN = {
    "is cut off": ".range { overflow: hidden; white-space: nowrap; width: 30px; }",
    "pixels wide in a window": ".cause h3 { width: 9000px; }",
    "is beside the window": ".cause .next { position: relative; left: -200px; }",
    "lies over one another": ".cause .next { margin-top: -22px; }",
}
"""What makes a page unreadable, each by a rule."""


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    with pictures.night() as found:
        yield found


@pages
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", HEIGHTS)
async def test_the_first_screen_shows_it(
    browser: Browser, night: Night, width: int, dark: bool
) -> None:
    async with night.seen(browser, width, dark=dark) as page:
        check(await first_screen.sets(page), night.head.facts["truth"], f"{width} pixels")
        assert await first_screen.height(page) <= MOST_PX[width]
        assert await first_screen.faults(page) == []
        await expect(page.locator(".cause").first).to_contain_text("an outage of the site")
        await expect(page.locator(".notice")).to_contain_text("is staging: 400 staging")
        await expect(page.locator(".tile.silent b")).to_have_text("3,333")
        assert len(await pictures.picture(page)) > 20_000


@pages
@pytest.mark.parametrize("fault", _BROKEN)
async def test_what_cannot_be_read_is_noticed(browser: Browser, night: Night, fault: str) -> None:
    async with night.seen(browser, 1280, dark=False) as page:
        await page.evaluate("rule => { document.styleSheets[0].insertRule(rule); }", _BROKEN[fault])
        assert fault in " ".join(await first_screen.faults(page))


@pages
async def test_each_next_step_is_a_command(browser: Browser, night: Night) -> None:
    async with night.seen(browser, 1280, dark=False) as page:
        steps = await page.locator(".cause .next code").all_text_contents()
    assert len(steps) == 3
    for step in steps:
        program, *words = shlex.split(step)
        assert program == "layercake"
        parse(words)


@pages
async def test_the_rack_shows_all_nodes_in_colour(browser: Browser, night: Night) -> None:
    async with night.seen(browser, 3840, dark=False) as page:
        await page.evaluate("location.hash = '#/rack'")
        legend = page.locator(".legend li")
        await expect(legend.filter(has_text="silent")).to_contain_text("3,333", timeout=60_000)
        await expect(page.locator(".grid[data-painted]")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await first_screen.height(page) <= 2300, "little more than a screen on a wall"


def test_a_terminal_shows_it(night: Night) -> None:
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in pictures.typed(night)]
    begin = plain.index("$ layercake explain")
    status, explained = plain[:begin], plain[begin + 1 :]
    check(list(shown(explained)), night.head.facts["truth"], "explain")
    rows = sum(-(-len(line) // COLUMNS) for line in plain)
    assert rows <= 40, "what is typed first fits on a screen"
    assert any("3333 silent" in line for line in status)
    assert any("roll 1 to two: staging; 400 staging" in line for line in status)
