"""axe-core has nothing to say against any view, in the light and in the dark, on a wide window and
on a telephone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.dashboard.test_views import quarantine
from tests.support.dashboard import NARROW, WIDE, Site, looking

pytestmark = pytest.mark.asyncio(loop_scope="session")
AXE = (Path(__file__).parent / "node_modules/axe-core/axe.min.js").read_text()
VIEWS = {
    "#/": ".cause",
    "#/rack": ".legend li",
    "#/node/n06": ".steps",
    "#/events": ".events li",
    "#/rolls": ".note",
}


async def findings(page: Page) -> list[str]:
    """What axe-core finds, for people."""
    found = await page.evaluate("""async () => (await axe.run()).violations.map(
        v => `${v.id}: ${v.nodes.map(n => n.target + ' ' + n.failureSummary).join('; ')}`)""")
    return list(found)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
async def test_nothing_is_found(
    browser: Browser, site: Site, dark: bool, size: ViewportSize
) -> None:
    quarantine(site, "n06", "the BMC refuses the password")
    await site.world.ops.care.freeze("", "a test", "ann")
    async with looking(
        browser, site, size=size, dark=dark, bypass_csp=True
    ) as look:  # axe-core is no part of the page
        await look.page.goto(site.url)
        await expect(look.page.locator("dialog")).to_be_visible()
        await look.page.evaluate(AXE)
        assert await findings(look.page) == [], "signing in"
        await look.page.fill("#token", await site.token("ann", "operator"))
        await look.page.keyboard.press("Enter")
        await look.page.wait_for_selector("#link.live")
        for view, shown in VIEWS.items():
            await look.view(view)
            await expect(look.page.locator(shown).first).to_be_visible(timeout=60_000)
            assert await findings(look.page) == [], view
            assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                f"{view}: as wide as the window"
            )
        await look.view("#/node/n06")
        for summary in ("The state graph", "Sensors", "Hardware"):
            await look.page.get_by_text(summary, exact=True).click()
        await look.page.get_by_role("button", name="Power off").click()
        await expect(look.page.locator("dialog")).to_be_visible()
        assert await findings(look.page) == [], "a question"
