"""A page that is open for long, and one to which more happens than anybody can read: it holds no
more than at first, says when its session is over, and is right again."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, expect

from layercake.fleet import events
from tests.dashboard.test_views import PATIENT
from tests.support.dashboard import Look, Site, looking

pytestmark = pytest.mark.asyncio(loop_scope="session")
VIEWS = {
    "#/rack": ".legend li",
    "#/node/n01": ".steps",
    "#/events": ".events li",
    "#/rolls": ".note",
    "#/": ".cause",
}
ROUNDS = 10
WEEK_MS = 7 * 24 * 3600 * 1000
FLOOD, AT_ONCE, KEPT = 10_000, 500, 500


async def held(look: Look) -> dict[str, float]:
    """What the page holds, without what is garbage."""
    link = await look.context.new_cdp_session(look.page)
    await link.send("HeapProfiler.collectGarbage")
    await link.send("Performance.enable")
    found = await link.send("Performance.getMetrics")
    await link.detach()
    return {one["name"]: one["value"] for one in found["metrics"]}


async def turn(look: Look) -> None:
    """Each view once."""
    for view, shown in VIEWS.items():
        await look.view(view)
        await expect(look.page.locator(shown).first).to_be_visible(timeout=PATIENT)


async def test_what_was_left_is_held_no_more(site: Site, look: Look) -> None:
    await turn(look)
    before = await held(look)
    for _ in range(ROUNDS):
        await turn(look)
        site.world.head.store.event(site.world.node("n01"), events.BOOT_SLOW, "it is slow")
    most = {
        "JSEventListeners": before["JSEventListeners"] + ROUNDS,
        "Nodes": before["Nodes"] * 1.5 + 40 * ROUNDS,
        "JSHeapUsedSize": before["JSHeapUsedSize"] + 4e6,
    }
    async with asyncio.timeout(PATIENT / 1000):  # what is garbage goes by and by
        while True:
            now = await held(look)
            if all(now[what] <= limit for what, limit in most.items()):
                return
            await asyncio.sleep(0.2)


async def test_a_week_later_it_asks_who_looks_and_is_right(browser: Browser, site: Site) -> None:
    async with looking(browser, site) as look:
        await look.page.clock.install()
        await look.sign_in(await site.token("ann", "operator", seconds=3600.0))
        await expect(look.page.locator(".cause").first).to_contain_text("n0", timeout=PATIENT)
        site.world.clock.now += 7 * 86400.0
        site.world.head.store.event(None, events.HEAD_STARTED, "a week later")
        await look.page.clock.fast_forward(WEEK_MS)
        dialog = look.page.locator("dialog")
        await expect(dialog).to_be_visible(timeout=PATIENT)
        await look.page.fill("#token", await site.token("bob", "operator"))
        await look.page.click("dialog button[type=submit]")
        await expect(look.page.locator("#link")).to_have_text("live", timeout=PATIENT)
        await expect(dialog).not_to_be_visible()
        await site.world.ops.care.freeze("", "a week later", "ann")
        await expect(look.page.locator("#alarms")).to_contain_text("a week later", timeout=PATIENT)


async def test_ten_thousand_events_at_once_are_the_newest_ones_and_the_page_lives(
    site: Site, look: Look
) -> None:
    await look.view("#/events")
    await expect(look.page.locator(".events li").first).to_be_visible(timeout=PATIENT)
    for number in range(FLOOD):  # of the head: of one node fewer are kept
        site.world.head.store.event(None, events.BOOT_SLOW, f"slow, for the time number {number}")
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
    lines = look.page.locator(".events li")
    await expect(lines.first).to_contain_text(f"number {FLOOD - 1}", timeout=PATIENT)
    assert 1 < await lines.count() <= KEPT
    await look.view("#/")
    await expect(look.page.locator(".cause").first).to_be_visible(timeout=PATIENT)
    await expect(look.page.locator("#link")).to_have_text("live", timeout=PATIENT)
