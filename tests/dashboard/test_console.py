"""A node's console on its page: Chromium, the head, powerman's service, and ipmi_sim's Serial over
LAN with a serial port."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from layercake.dashboard import pages
from layercake.features.consoles import routes
from layercake.moduleapi.service import FakeLink
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.console.conftest import until
from tests.console.test_real_sol import PASSWORD, simulator
from tests.dashboard.test_axe import AXE, findings
from tests.dashboard.test_bounds import asks_and_stalls, rss
from tests.dashboard.test_bounds import opened as dashboard
from tests.support import site as modulesite
from tests.support.dashboard import NARROW, WIDE, Look, Site, looking
from tests.support.disk import on_disk
from tests.support.pseudo import Serial

pytestmark = pytest.mark.asyncio(loop_scope="session")
NODE = "n00"
PATIENT = 60_000
HOSTILE = (
    b"\x1b]0;owned\x07\x1b]2;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b]8;;https://evil.example/\x07click "
    b"me\x1b]8;;\x07"
    b"\x1b[21t\x1b[>c\x1bP$qm\x1b\\\x1b]11;?\x07\x1b]4;1;?\x07"
    b"x\x1b[2147483647b\x1b[2147483647S\x1b[2147483647L\x1b[2147483647T\x1b[2147483647I"
    b"<img src=x onerror=alert(1)> \x1b[38;2;10;20;30mdark\x1b[0m \x1b[31mred\x1b[0m still here\r\n"
)


@contextlib.asynccontextmanager
async def connected(
    site: Site, folder: Path, name: str = NODE
) -> AsyncIterator[tuple[Serial, PowerService]]:
    """The serial port of a node, whose BMC is ipmi_sim; the head asks the service as over the
    module API."""
    found, service, key = Serial(), PowerService(polls=False), site.world.node(name).node.id

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        return json.loads(json.dumps(await service.call(method, json.loads(json.dumps(params)))))

    with simulator(folder / "bmc", found.path) as port:
        await service.start(FakeLink(), modulesite.site(data_dir=str(folder)), PowerSettings())
        site.world.head.modules.host.call = ask  # type: ignore[method-assign]
        try:
            bmc = {
                "driver": "ipmi",
                "address": "127.0.0.1",
                "port": port,
                "username": "admin",
                "password": PASSWORD,
            }
            await service.node_changed(key, {"name": name, "firmware": "bios", "bmc": bmc})
            async with asyncio.timeout(60):
                while service.consoles.of(key).state.value != "open":
                    await asyncio.gather(
                        service.call("power.refresh", {"node": key}), return_exceptions=True
                    )
                    await asyncio.sleep(0.2)
            yield found, service
        finally:
            await service.stop()
            found.close()


@pytest_asyncio.fixture(loop_scope="session")
async def rig(site: Site, tmp_path: Path) -> AsyncIterator[tuple[Serial, PowerService]]:
    """n00 has a console."""
    async with connected(site, tmp_path) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def serial(rig: tuple[Serial, PowerService]) -> Serial:
    """The serial port alone."""
    return rig[0]


async def opened(look: Look, site: Site, who: str = "ann", *, may_exec: bool = False) -> Page:
    """The console, on the page of who is signed in with that right."""
    await look.sign_in(
        await site.token(who, "operator", may_exec=may_exec), f"#/node/{NODE}", may_exec=may_exec
    )
    await look.page.get_by_text("Console", exact=True).click()
    await expect(look.page.locator(".console-state")).to_contain_text("open;", timeout=PATIENT)
    return look.page


def shown(page: Page, text: str) -> Any:
    """What the terminal shows."""
    return expect(page.locator(".xterm-rows")).to_contain_text(text, timeout=PATIENT)


@pytest_asyncio.fixture(loop_scope="session")
async def guest(browser: Browser, site: Site) -> AsyncIterator[Look]:
    """A page of nobody yet; nothing on it is against the policy."""
    async with looking(browser, site) as found:
        yield found
        assert found.complaints() == []


async def test_what_the_machine_writes_is_shown_in_colour_under_the_same_policy(
    site: Site, serial: Serial, guest: Look
) -> None:
    await serial.write(b"said before anybody looked\r\n")
    page = await opened(guest, site)
    await shown(page, "said before anybody looked")
    await serial.write(b"\x1b[31mred\x1b[0m \x1b[38;2;120;200;255mof its own\x1b[0m login: ")
    await shown(page, "login:")
    colours = await page.evaluate("""() => Object.fromEntries([...document.querySelectorAll('.xterm-rows span')].map(
        one => [one.textContent.trim(), getComputedStyle(one).color]))""")
    assert colours["of its own"] == "rgb(120, 200, 255)" and colours["red"] not in (
        "rgb(232, 237, 243)",
        "rgb(0, 0, 0)",
    )
    assert "unsafe" not in pages.POLICY and "style-src 'self';" in pages.POLICY
    await page.get_by_role("button", name="Last lines").click()
    await expect(page.locator(".console .log")).to_contain_text(
        "said before anybody looked", timeout=PATIENT
    )


async def test_who_has_no_exec_reads_only_and_is_told_why(
    site: Site, serial: Serial, guest: Look
) -> None:
    page = await opened(guest, site)
    await expect(page.locator(".console .acts")).to_contain_text(
        "to type, sign in with the right exec"
    )
    assert await page.get_by_role("button", name="Type").count() == 0
    await page.locator(".screen").click()
    await page.keyboard.type("rm -rf /")
    await serial.write(b"# ")
    await shown(page, "#")
    refused = await page.evaluate(f"""() => new Promise(done => {{
        const socket = new WebSocket(`wss://${{location.host}}/v1/nodes/{NODE}/console/write`);
        socket.onopen = () => done("open"); socket.onclose = () => done("refused"); }})""")
    assert refused == "refused" and serial.got == b""
    guest.said.clear()  # the browser tells of the refusal itself


async def test_the_keyboard_is_had_by_one_shown_to_all_and_taken_after_a_question(
    browser: Browser, site: Site, serial: Serial, guest: Look
) -> None:
    first = await opened(guest, site, "ann", may_exec=True)
    await first.get_by_role("button", name="Type").click()
    await expect(first.locator(".writer")).to_have_text("you have the keyboard", timeout=PATIENT)
    await first.keyboard.type("root\n")
    await until("it was typed", lambda: serial.got == b"root\r")
    await first.keyboard.press("Tab")
    await until("Tab is the machine's", lambda: serial.got == b"root\r\t")
    await first.keyboard.press("Control+]")
    assert await first.evaluate("document.activeElement.textContent") == "Send a break", (
        "the keys are the page's again"
    )
    async with looking(browser, site) as second:
        other = await opened(second, site, "bob", may_exec=True)
        await expect(other.locator(".writer")).to_contain_text("ann", timeout=PATIENT)
        await other.get_by_role("button", name="Take the keyboard").click()
        dialog = other.locator("dialog")
        await expect(dialog).to_contain_text(
            "ann at 127.0.0.1 has the keyboard, is told, and reads on."
        )
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(first.locator(".writer")).to_have_text("you have the keyboard")
        await other.get_by_role("button", name="Take the keyboard").click()
        await dialog.get_by_role("button", name="Take the keyboard").click()
        await expect(first.locator(".writer")).to_contain_text("bob", timeout=PATIENT)
        await expect(other.locator(".writer")).to_have_text(
            "you have the keyboard", timeout=PATIENT
        )
        await other.get_by_role("button", name="Leave the keyboard").click()
        await expect(first.locator(".writer")).to_have_text("nobody types", timeout=PATIENT)
        assert second.complaints() == []
    assert (
        sum(
            "/console/write" in str(row)
            for row in on_disk(site.world.directory, "SELECT * FROM audit")
        )
        == 2
    )


async def test_hostile_escape_sequences_do_no_harm(site: Site, serial: Serial, guest: Look) -> None:
    await guest.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await opened(guest, site, may_exec=True)
    await page.get_by_role("button", name="Type").click()
    await expect(page.locator(".writer")).to_have_text("you have the keyboard", timeout=PATIENT)
    await page.evaluate("navigator.clipboard.writeText('mine')")
    await serial.write(HOSTILE)
    await shown(page, "still here")
    await shown(page, "<img src=x onerror=alert(1)>")
    assert (
        await page.title() == f"{NODE} - Layercake"
        and await page.evaluate("navigator.clipboard.readText()") == "mine"
    )
    box = await page.locator(".xterm-rows span", has_text="click me").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 4, box["y"] + 4)
    await page.mouse.click(box["x"] + 4, box["y"] + 4)
    assert (
        len(guest.context.pages) == 1
        and await page.locator("dialog, .xterm a, .xterm img").count() == 0
    )
    await serial.write(b"\x1b[6n")
    await until("it answers where the cursor is", lambda: b"R" in serial.got)
    assert serial.got.startswith(b"\x1b[") and serial.got.count(b"\x1b") == 1, (
        "and nothing else that it was asked"
    )


async def test_what_comes_too_fast_is_left_out_and_the_page_lives(
    site: Site, serial: Serial, guest: Look
) -> None:
    page = await opened(guest, site)
    version = await page.evaluate("document.querySelector('script').src.split('/').at(-2)")
    elements = await page.evaluate(
        """async version => {
        const { terminal, WAITING } = await import(`/dashboard/${version}/terminal.js`);
        const place = document.createElement("div");
        place.id = "flooded";
        document.body.append(place);
        window.flooded = await terminal(place, () => {}, () => {});
        const line = new TextEncoder().encode("a line of a machine gone mad\\r\\n".repeat(1000));
        for (let sum = 0; sum < 40 * WAITING; sum += line.length) flooded.write(line);
        return place.querySelectorAll("*").length;
    }""",
        version,
    )
    assert elements < 2000
    rows = page.locator("#flooded .xterm-rows")
    async with asyncio.timeout(60):
        while "bytes before this are not shown" not in await rows.inner_text():
            await page.evaluate("flooded.write(new TextEncoder().encode('.'))")
    before = await page.evaluate("document.adoptedStyleSheets.length")
    await page.evaluate("flooded.end()")
    assert await page.evaluate("document.adoptedStyleSheets.length") < before, (
        "it leaves nothing behind"
    )


async def test_a_browser_that_stalls_costs_no_memory_and_is_cut_off(
    site: Site, rig: tuple[Serial, PowerService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STUCK_S", 2.0)
    token, base = await site.token("wall", "operator"), site.url.removesuffix(pages.PATH)
    browser, events = await dashboard(site, token)
    async with browser.post(f"{site.url}session", json={"token": token}) as answer:
        cookie = answer.cookies["__Host-layercake"].value
    request = (
        f"GET /v1/nodes/{NODE}/console HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nOrigin: "
        f"{base}\r\nConnection: Upgrade\r\n"
        f"Upgrade: websocket\r\nCookie: __Host-layercake={cookie}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    console = rig[1].consoles.of(site.world.node(NODE).node.id)
    stalled = [await asyncio.to_thread(asks_and_stalls, site.port, request) for _ in range(3)]
    await until("they read", lambda: len(console.readers.names) == 3)
    before, told, said = rss(), b"x" * (64 << 10), 0
    async with asyncio.timeout(60):
        while console.readers.names or said < 200 << 20:
            console.readers.add_output(told)  # the log has bounds of its own
            console.news()
            said += len(told)
            await asyncio.sleep(0)
    assert rss() - before < 60 << 20, "what stalled browsers did not read is not kept"
    for one in stalled:
        one.close()
    await events.close()
    await browser.close()


async def test_it_comes_back_after_the_head_and_is_left_with_the_page(
    site: Site, serial: Serial, guest: Look
) -> None:
    page = await opened(guest, site)
    await site.stop()
    await expect(page.locator(".console-state")).to_contain_text("not connected", timeout=PATIENT)
    await site.start()
    await expect(page.locator(".console-state")).to_contain_text("open;", timeout=PATIENT)
    await serial.write(b"after it\r\n")
    await shown(page, "after it")
    guest.said.clear()
    ask = site.world.ops.consoles.states
    assert (await ask(NODE))[0]["readers"] == ["ann at 127.0.0.1"]
    await guest.view("#/rack")
    async with asyncio.timeout(60):
        while (await ask(NODE))[0]["readers"]:
            await asyncio.sleep(0.05)


async def test_a_node_without_a_console_says_so_once(
    site: Site, rig: tuple[Serial, PowerService], guest: Look
) -> None:
    await rig[1].node_changed(
        site.world.node("n01").node.id, {"name": "n01", "firmware": "bios", "bmc": None}
    )
    tried: list[str] = []
    guest.page.on("websocket", lambda socket: tried.append(socket.url))
    await guest.sign_in(await site.token("ann", "operator"), "#/node/n01")
    await guest.page.get_by_text("Console", exact=True).click()
    await expect(guest.page.locator(".console .why")).to_contain_text(
        "The console is none.", timeout=PATIENT
    )
    await expect(guest.page.locator(".console-state")).to_have_text("There is nothing to open.")
    await guest.page.wait_for_timeout(1500)
    assert sum(url.endswith("/console") for url in tried) == 1, (
        "it is not asked for again and again"
    )
    guest.said.clear()


async def test_a_head_without_xterm_says_so_and_the_rest_works(
    site: Site, serial: Serial, guest: Look
) -> None:
    await guest.page.route("**/xterm/*", lambda route: route.fulfill(status=404))
    await serial.write(b"kept in the log\r\n")
    await guest.sign_in(await site.token("ann", "operator"), f"#/node/{NODE}")
    await guest.page.get_by_text("Console", exact=True).click()
    await expect(guest.page.locator(".console-state")).to_contain_text(
        "This head has no xterm.js", timeout=PATIENT
    )
    await expect(guest.page.locator(".console .log")).to_contain_text(
        "kept in the log", timeout=PATIENT
    )
    await expect(guest.page.locator(".verdict")).to_contain_text("converged")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
async def test_axe_finds_nothing(
    browser: Browser, site: Site, serial: Serial, dark: bool, size: ViewportSize
) -> None:
    await serial.write(b"\x1b[34mdark blue\x1b[0m and \x1b[33myellow\x1b[0m\r\nlogin: ")
    async with looking(
        browser, site, size=size, dark=dark, bypass_csp=True
    ) as look:  # axe-core is no part of the page
        page = await opened(look, site, may_exec=True)
        await page.evaluate(AXE)
        await shown(page, "login:")
        await page.get_by_role("button", name="Last lines").click()
        await expect(page.locator(".console .log")).to_contain_text("dark blue", timeout=PATIENT)
        assert await findings(page) == [], "reading"
        await page.get_by_role("button", name="Type").click()
        await expect(page.locator(".writer")).to_have_text("you have the keyboard", timeout=PATIENT)
        assert await findings(page) == [], "typing"
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            "as wide as the window"
        )


async def test_by_keyboard_alone(site: Site, serial: Serial, guest: Look) -> None:
    page = guest.page
    await guest.sign_in(
        await site.token("ann", "operator", may_exec=True), f"#/node/{NODE}", may_exec=True
    )
    await expect(page.locator(".verdict")).to_be_visible()
    for wanted in ("Console", "Type"):
        for _ in range(60):
            if await page.evaluate("document.activeElement.textContent") == wanted:
                break
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator(".console-state")).to_contain_text("open;", timeout=PATIENT)
    await expect(page.locator(".writer")).to_have_text("you have the keyboard", timeout=PATIENT)
    await page.keyboard.type("ls")
    await until("it was typed", lambda: serial.got == b"ls")
    await page.keyboard.press("Control+]")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".writer")).to_have_text("nobody types", timeout=PATIENT)
