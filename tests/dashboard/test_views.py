"""What the views show, how soon, and what can be done there."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Page, expect

from layercake.documentation import URL, howto
from layercake.features.guard.guard import Guard
from layercake.features.guard.outage import Outage
from layercake.features.heads.known import KnownHeads
from layercake.features.heads.troubles import LASTS_S
from layercake.fleet import events
from layercake.kraken.converge import Discovered, Failed
from pxe.events import OTHER_SERVER
from tests.support.dashboard import Look, Site, certify, inventory, looking
from tests.support.heads_view import heads_view
from tests.support.rollnodes import a_site

pytestmark = pytest.mark.asyncio(loop_scope="session")
PATIENT = 60_000
HOSTILE = (
    "<img src=x onerror=alert(1)>\x1b]0;evil\x07</script><script>document.title='evil'</script>"
)


async def cell(page: Page, rack: int, index: int, at: tuple[int, int] = (3, 3)) -> str:
    """The colour of a cell of the rack at so many pixels from its corner, as it was painted."""
    return str(
        await page.evaluate(
            """([rack, index, right, down]) => {
        const canvas = document.querySelector(".grid canvas"), pen = canvas.getContext("2d");
        const scale = devicePixelRatio, [x, y] = [rack * (7 * 15 + 14) + index % 7 * 15 + right, 20 + Math.floor(index / 7) * 15 + down];
        return [...pen.getImageData(x * scale, y * scale, 1, 1).data].slice(0, 3).join(",");
    }""",
            [rack, index, *at],
        )
    )


async def until_cell(page: Page, rack: int, index: int, is_so: str) -> str:
    """Waits until a cell has a colour, or with "!" until it has another."""
    async with asyncio.timeout(60):
        while (
            (found := await cell(page, rack, index)) == is_so.removeprefix("!")
        ) is is_so.startswith("!"):
            await asyncio.sleep(0.05)
    return found


def quarantine(site: Site, name: str, reason: str) -> None:
    """What a BMC says fails until the node is left alone."""
    record = site.world.node(name)
    for _ in range(400):
        if record.machine.quarantine is not None:
            return
        active = record.machine.active
        if active is not None:
            site.world.head.engine.post(record, Failed(active.mutation, active.attempt, reason))
        site.world.tick(5)
        site.up(*(other.name for other in site.world.head.store if other.session is not None))
    raise AssertionError(f"{name} is still tried")


async def test_what_is_wrong_names_a_planted_cause_and_the_next_step_first(
    site: Site, look: Look
) -> None:
    quarantine(site, "n06", "the BMC at 10.2.0.6 refuses the password")
    first = look.page.locator(".cause").filter(has_text="refuses the password")
    await expect(first).to_contain_text("quarantined", timeout=PATIENT)
    await expect(first.locator(".next")).to_contain_text("layercake node clear n06")
    await first.get_by_role("button", name="More").click()
    await expect(first.get_by_role("link", name="docs: bmc-troubles")).to_have_attribute(
        "href", f"{URL}{howto('bmc-troubles')}.html"
    )
    await expect(look.page.locator(".tile.quarantined b")).to_have_text("1")
    await first.get_by_role("link", name="n06").first.click()
    await expect(look.page.locator(".verdict")).to_contain_text("refuses the password")


async def test_what_is_wrong_beside_that_nodes_are_not_as_wanted_comes_last(
    site: Site, look: Look
) -> None:
    store = site.world.head.store
    store.event(
        store.named("n06"),
        OTHER_SERVER,
        "10.2.0.9 is taken from DHCP server 192.0.2.66 <b>, which is not expected here",
    )
    await look.view("#/")
    last = look.page.locator(".cause").last
    await expect(last).to_contain_text("192.0.2.66 <b>, which is not expected", timeout=PATIENT)
    await expect(last.locator(".next code")).to_have_text(
        "layercake events --security --kind dhcp.other-server"
    )
    page = "beside-another-dhcp-server"
    await expect(last.get_by_role("link", name=f"docs: {page}")).to_have_attribute(
        "href", f"{URL}{howto(page)}.html"
    )


async def test_an_outage_and_a_freeze_are_on_top_of_every_view(site: Site, look: Look) -> None:
    await look.view("#/events")
    await site.world.ops.care.freeze("", "the chiller is off", "ann")
    alarms = look.page.locator("#alarms")
    await expect(alarms).to_contain_text(
        "The whole site is frozen by ann: the chiller is off", timeout=PATIENT
    )
    await look.view("#/")
    stopped = look.page.locator(".cause").filter(has_text="the chiller is off")
    await expect(stopped.locator(".next code")).to_have_text("layercake thaw", timeout=PATIENT)
    await expect(stopped.get_by_role("button", name="Thaw")).to_have_count(0)
    await site.world.ops.care.thaw("", "ann")
    await expect(alarms).to_be_empty(timeout=PATIENT)


async def test_a_head_that_hangs_is_told_of_and_how_old_the_picture_is(
    site: Site, look: Look
) -> None:
    """It takes connections, and says nothing: what is open is no sign of life."""
    await look.view("#/")
    link = look.page.locator("#link")
    await expect(link).to_have_text("live", timeout=PATIENT)
    await look.page.route("**/v1/session", lambda route: asyncio.sleep(3600))
    await expect(link).to_contain_text(
        "the head does not answer; what is shown is", timeout=PATIENT
    )
    await expect(look.page.locator("#content")).to_have_class("old")
    since = await look.page.evaluate("performance.now() / 1000")
    told = float(await look.page.locator("#link .age").get_attribute("data-since") or 0)
    assert since - told < 8.0, "the next but one sign of life was missed"
    await look.page.unroute("**/v1/session")
    await expect(link).to_have_text("live", timeout=PATIENT)
    await expect(look.page.locator("#content")).not_to_have_class("old")


async def test_an_outage_is_the_first_cause_and_a_line_elsewhere(site: Site, look: Look) -> None:
    silent = [f"n0{number}" for number in range(4)]
    outage = Outage("rack0", 0.0, frozenset(site.world.node(n).node.id for n in silent), 4)
    whole = Outage("", 0.0, outage.silent, 8)
    for name in silent:
        site.world.head.engine.post(site.world.node(name), Discovered({"run": "UNKNOWN"}, "it"))
    site.world.head.part(Guard).outages.replace_all({"rack0": outage, "": whole})
    site.world.head.store.event(None, events.OUTAGE_CALLED, "as the guard says it")
    await look.view("#/rack")
    line = look.page.locator("#alarms .outage")
    await expect(line).to_have_count(1, timeout=PATIENT)
    await expect(line).to_contain_text("Outage of domain rack0: 4 of 4 nodes silent")
    await look.view("#/")
    first = look.page.locator(".cause").first
    await expect(first).to_contain_text("an outage of domain rack0", timeout=PATIENT)
    await expect(first.locator(".range").first).to_have_text("n[00-03]")
    await expect(first.get_by_role("button", name="End the outage")).to_be_visible()
    await expect(line).to_be_hidden()
    await first.get_by_role("button", name="More").click()
    await expect(first.locator("dl")).to_contain_text("power, switch, uplink, relay")
    site.world.head.part(Guard).outages.replace_all({})
    site.up(*silent)


async def test_a_node_in_maintenance_has_the_colour_of_what_is_held(site: Site, look: Look) -> None:
    held = await look.page.evaluate(
        """() => {
        const one = document.body.appendChild(document.createElement("b"));
        one.style.color = "var(--held)";
        return getComputedStyle(one).color.match(/\\d+/g).join(",");
    }"""
    )
    await look.view("#/rack")
    await site.world.ops.care.begin("n01", "a new board", "ann", None)
    await expect(look.page.locator(".legend li:not(.none)", has_text="maintenance")).to_have_text(
        "M maintenance 1", timeout=PATIENT
    )
    assert await cell(look.page, 0, 1, (2, 12)) == held  # beside the letter


async def test_a_change_on_a_node_reaches_the_rack(site: Site, look: Look) -> None:
    await look.view("#/rack")
    await expect(look.page.locator(".legend")).to_contain_text("converged 6", timeout=PATIENT)
    well, working = await cell(look.page, 0, 0), await cell(look.page, 1, 2)
    assert well != working, "n00 is well, n06 is not"
    site.up("n06")
    await until_cell(look.page, 1, 2, well)
    await expect(look.page.locator(".legend")).to_contain_text("converged 7")


async def test_the_rack_by_switch_has_its_nodes_in_the_order_of_the_ports(
    site: Site, look: Look
) -> None:
    where = {
        0: ("sw2", "Eth1/10"),
        1: ("sw2", "Eth1/9"),
        2: ("sw10", "2"),
        3: ("sw2", "Eth1/1"),
        4: ("sw10", "1"),
    }
    places = {
        f"n{i:02d}": f"place: {{switch: {switch}, port: '{port}'}}, "
        for i, (switch, port) in where.items()
    }
    text = "\n".join(
        line.replace("{mac", f"{{{places.get(line.strip()[:3], '')}mac", 1)
        for line in inventory(8, racks=2).splitlines()
    )
    await look.view("#/rack?by=switch")
    await site.world.ops.inventory.apply(text, "rack.yaml", None, False)
    await expect(look.page.locator("#by option:checked")).to_have_text("switch", timeout=PATIENT)
    await look.page.locator(".grid").focus()
    seen = []
    for _ in range(8):
        seen.append(await look.page.locator("#grid-node").inner_text())
        await look.page.keyboard.press("ArrowRight")
    assert [line.partition(":")[0] for line in seen] == [
        "n03",
        "n01",
        "n00",
        "n04",
        "n02",
        "n05",
        "n06",
        "n07",
    ]
    assert seen[1].endswith("(sw2 Eth1/9)"), "a switch for itself, and those without one last"
    await look.view("#/node/n01")
    await expect(look.page.locator(".facts")).to_contain_text("sw2 Eth1/9", timeout=PATIENT)


async def test_after_a_restart_of_the_head_the_page_is_right_again(site: Site, look: Look) -> None:
    token = await site.token("again", "operator")
    await look.view("#/rack")
    await expect(look.page.locator(".legend")).to_contain_text("converged 6", timeout=PATIENT)
    await site.stop()
    await expect(look.page.locator("#link")).to_contain_text("old")
    await site.start()
    await expect(look.page.locator("#link")).to_have_text("live", timeout=PATIENT)
    look.said.clear()
    await site.stop()
    await site.world.restart()
    await site.world.ops.inventory.apply(inventory(5, racks=1), "rack.yaml", None, True)
    await site.start()
    await expect(look.page.locator("dialog.sign-in")).to_be_visible(timeout=PATIENT)
    await look.page.fill("#token", token)
    await look.page.keyboard.press("Enter")
    await expect(look.page.locator("#link")).to_have_text("live", timeout=PATIENT)
    total = (
        "[...document.querySelectorAll('.legend b')].reduce((sum, b) => sum + "
        "Number(b.textContent), 0)"
    )
    await look.page.wait_for_function(f"() => {total} === 5", timeout=PATIENT)
    look.said.clear()  # a browser says itself that it could not connect


async def test_nodes_are_chosen_by_range_and_query_and_a_wrong_one_is_explained(
    site: Site, look: Look
) -> None:
    await look.view("#/rack")
    acts = look.page.locator(".acts")
    await expect(acts).to_contain_text("Choose nodes by name or by query", timeout=PATIENT)
    assert await acts.get_by_role("button").count() == 0, (
        "all nodes are never a target by themselves"
    )
    await look.page.fill("#range", "@rack1")
    await look.page.fill("#where", "status!=converged")
    await look.page.keyboard.press("Enter")
    await expect(acts).to_contain_text("With the 2 nodes shown")
    await acts.get_by_role("button", name="Power cycle").click()
    await expect(look.page.locator("dialog .target")).to_have_text("n[06-07]")
    await look.page.keyboard.press("Escape")
    await expect(look.page.locator("dialog")).to_have_count(0)
    await look.page.fill("#where", "stauts=x")
    await look.page.keyboard.press("Enter")
    await expect(look.page.locator("main > .why")).to_contain_text("nodes have no 'stauts'")


async def test_a_power_action_asks_and_names_its_target(site: Site, look: Look) -> None:
    site.world.send(site.world.hello("n01", busy="BUSY"))
    await look.view("#/node/n01")
    await look.page.get_by_role("button", name="Power off").click()
    dialog = look.page.locator("dialog")
    await expect(dialog.locator("h2")).to_have_text("Power off n01?")
    await expect(dialog).to_contain_text("1 node, 1 of them running, 1 BUSY (n01).")
    await dialog.get_by_role("button", name="Cancel").click()
    assert site.world.node("n01").node.state == "up"
    await look.page.get_by_role("button", name="Power off").click()
    await dialog.get_by_role("button", name="Power off 1 node").click()
    await expect(dialog.locator(".why")).to_contain_text("BUSY")
    assert site.world.node("n01").node.state == "up"
    await dialog.get_by_label("BUSY nodes too").check()
    await dialog.get_by_role("button", name="Power off 1 node").click()
    await expect(look.page.locator("#said")).to_have_text("Power off: n01")
    assert site.world.node("n01").node.state == "off"


async def test_a_node_page_shows_its_way_its_boot_and_what_happens(site: Site, look: Look) -> None:
    record, told = site.world.node("n07"), site.world.head.table.events
    await look.view("#/node/n07")
    await expect(look.page.locator(".steps .now")).to_contain_text(
        "power-discover", timeout=PATIENT
    )
    for name in ("boot.discover-seen", "boot.nbp-sent", "boot.script-sent"):
        site.world.head.store.event(record, told[name], f"told of {name}")
    await expect(look.page.locator("table.boot")).to_contain_text("script-sent", timeout=PATIENT)
    await look.page.get_by_text("The state graph").click()
    await expect(look.page.locator("img.graph")).to_be_visible()
    await look.page.wait_for_function(
        "() => document.querySelector('img.graph').naturalWidth > 300"
    )
    site.world.head.engine.post(record, Discovered({"power": "ON"}, "seen"))
    await expect(look.page.locator(".steps .here")).to_contain_text("power=ON", timeout=PATIENT)


async def test_events_come_as_they_happen_and_hold_still_when_asked(site: Site, look: Look) -> None:
    await look.view("#/events")
    await expect(look.page.locator(".events li").first).to_be_visible()
    site.world.head.store.event(site.world.node("n03"), events.NODE_EVENT, "the door was opened")
    await expect(look.page.locator(".events li").first).to_contain_text(
        "the door was opened", timeout=PATIENT
    )
    await look.page.get_by_role("button", name="Hold still").click()
    site.world.head.store.event(site.world.node("n03"), events.NODE_EVENT, "and closed")
    await look.page.get_by_role("button", name="Hold still").click()
    await expect(look.page.locator(".events li").first).to_contain_text(
        "and closed", timeout=PATIENT
    )


async def test_rolls_go_on_are_paused_and_aborted(browser: Browser, site: Site, look: Look) -> None:
    folder = site.world.directory / "rolls"
    certify(folder)
    async with a_site(folder, 6) as cluster:
        there = Site(cluster.world, folder)
        await there.start()
        try:
            await cluster.start("@all", "two", batch="2", health_s=1.0)
            async with looking(browser, there) as page:
                await page.sign_in(await there.token("ann", "operator"), "#/rolls")
                await page.page.get_by_role("link", name="Roll 1").click()
                await cluster.step(5)
                await expect(page.page.locator(".squares .cell").first).to_be_visible(
                    timeout=PATIENT
                )
                for what, state in (
                    ("Pause", "paused"),
                    ("Resume", "rolling"),
                    ("Abort", "aborted"),
                ):
                    await page.page.get_by_role("button", name=what, exact=True).click()
                    await expect(page.page.locator("dialog h2")).to_have_text(
                        f"{what} roll 1 to two?"
                    )
                    await page.page.get_by_role("button", name=f"{what} roll 1").click()
                    await expect(page.page.locator(".roll .status")).to_have_text(
                        state, timeout=PATIENT
                    )
                assert page.complaints() == []
        finally:
            await there.stop()


async def test_hostile_words_are_shown_and_do_nothing(site: Site, look: Look) -> None:
    quarantine(site, "n06", HOSTILE)
    site.world.head.store.event(site.world.node("n06"), events.NODE_EVENT, HOSTILE)
    for view, shown in (
        ("#/", ".cause"),
        ("#/node/n06", ".events"),
        ("#/events", ".events"),
        ("#/rack", ".legend"),
    ):
        await look.view(view)
        await expect(look.page.locator(shown).first).to_be_visible(timeout=PATIENT)
    await look.view("#/node/n06")
    await expect(look.page.locator(".verdict")).to_contain_text(
        "<img src=x onerror=alert(1)>", timeout=PATIENT
    )
    await look.view("#/node/" + "%3Cimg%20src=x%20onerror=alert(1)%3E")
    await expect(look.page.locator("h1")).to_have_text("<img src=x onerror=alert(1)>")
    await expect(look.page.locator(".lead .why")).to_be_visible()
    assert await look.page.evaluate("document.querySelectorAll('img, script').length") == 1, (
        "our own script"
    )
    assert "evil" not in await look.page.title()


async def test_by_keyboard_alone_from_the_cause_to_the_action(site: Site, look: Look) -> None:
    page = look.page
    await look.view("#/rack")
    await expect(page.locator(".legend")).to_contain_text("converged 6", timeout=PATIENT)
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.className") == "grid":
            break
    await expect(page.locator("#grid-node")).to_have_text("n00: converged")
    for key in ("ArrowRight", "End", "ArrowLeft"):
        await page.keyboard.press(key)
    await expect(page.locator("#grid-node")).to_contain_text("n06: working")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("n06")
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == "Power off":
            break
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    assert await page.evaluate("document.activeElement.textContent") == "Power off", (
        "the focus is back where it was"
    )


async def test_a_page_that_nobody_sees_asks_nothing(site: Site, look: Look) -> None:
    await look.view("#/rack")
    await expect(look.page.locator(".legend")).to_contain_text("converged 6", timeout=PATIENT)
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    connected = site.world.head.store.listening
    await look.page.evaluate(hide, True)
    async with asyncio.timeout(60):
        while site.world.head.store.listening >= connected:
            await asyncio.sleep(0.02)
    asked: list[str] = []
    look.page.on("request", lambda request: asked.append(request.url))
    site.up("n06")
    await look.page.wait_for_timeout(300)
    assert asked == []
    await look.page.evaluate(hide, False)
    await expect(look.page.locator(".legend")).to_contain_text("converged 7", timeout=PATIENT)


async def test_several_heads_are_shown_where_the_sites_health_is_and_one_is_not(
    site: Site, look: Look
) -> None:
    await look.view("#/")
    await expect(look.page.locator(".well, .cause").first).to_be_visible(timeout=PATIENT)
    await expect(look.page.locator(".heads")).to_have_count(0)
    known = site.world.head.part(KnownHeads)
    for _ in range(2):
        known.apply_view(heads_view(site.world.head.store.wall()))
        site.world.clock.now += LASTS_S
    await expect(look.page.locator(".heads")).to_have_text(
        "Heads: leader leads, head2 follows, 700 entries behind.", timeout=PATIENT
    )
    down = look.page.locator("p.alarm").filter(has_text="a member of the heads' store is down")
    await expect(down).to_contain_text("`systemctl restart layercake-store` on 10.0.0.3")
