"""Who is let in at the page, as whom, and until when."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from layercake.dashboard.pages import POLICY
from layercake.features.access.audit import Audit
from layercake.features.access.sessions import LIFETIME_S, TICKET_S, Sessions
from tests.support.dashboard import Look, Site, looking

pytestmark = pytest.mark.asyncio(loop_scope="session")
OWN = {"X-Layercake": "1"}


@pytest_asyncio.fixture(loop_scope="session")
async def guest(browser: Browser, site: Site) -> AsyncIterator[Look]:
    """A page of nobody yet."""
    async with looking(browser, site) as found:
        yield found


def client() -> aiohttp.ClientSession:
    """A program with cookies that may say whatever it likes."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False), cookie_jar=aiohttp.CookieJar(unsafe=True)
    )


async def link(site: Site, *options: str) -> str:
    """What `layercake dashboard` prints, run for real over the head's socket."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "layercake.cli.main",
        "--socket",
        site.world.settings.socket,
        "dashboard",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert b"good once, for 2m" in errors
    return out.decode().strip()


async def test_a_link_of_the_command_line_signs_in_once(
    browser: Browser, site: Site, guest: Look
) -> None:
    url = await link(site)
    await guest.page.goto(url)
    await expect(guest.page.locator("#who")).to_have_text("root admin")
    assert "ticket" not in guest.page.url and await guest.page.evaluate("document.cookie") == "", (
        "no script can read the session"
    )
    async with looking(browser, site) as other:
        await other.page.goto(url)
        await expect(other.page.locator("#sign-in-why")).to_contain_text(
            "this link was used, or is too old"
        )
    assert guest.complaints() == []


async def test_a_link_is_too_old_after_two_minutes(site: Site, guest: Look) -> None:
    url = await link(site)
    sessions = site.world.head.part(Sessions)
    wall = sessions.wall
    sessions.wall = lambda: wall() + TICKET_S
    await guest.page.goto(url)
    await expect(guest.page.locator("#sign-in-why")).to_contain_text("too old")


async def test_a_token_signs_in_with_its_role_and_no_more(site: Site, guest: Look) -> None:
    await guest.page.goto(site.url)
    await guest.page.fill("#token", "wrong")
    await guest.page.keyboard.press("Enter")
    await expect(guest.page.locator("#sign-in-why")).to_contain_text(
        "it needs a token that is valid"
    )
    await guest.page.fill("#token", await site.token("wall", "viewer"))
    await guest.page.keyboard.press("Enter")
    await expect(guest.page.locator("#who")).to_have_text("wall viewer")
    await guest.view("#/node/n06")
    await expect(guest.page.locator(".verdict")).to_contain_text("working")
    assert await guest.page.get_by_role("button", name="Power off").count() == 0, (
        "a viewer is offered nothing that is refused"
    )
    status = await guest.page.evaluate("""async () => (await fetch("/v1/power", {method: "POST", headers: {"X-Layercake": "1"},
        body: JSON.stringify({range: "n06", action: "off"})})).status""")
    assert status == 403 and site.world.node("n06").node.state == "up"


async def test_the_right_exec_is_had_by_who_asks_for_it_and_has_it(site: Site, guest: Look) -> None:
    both, none = (
        await site.token("ann", "operator", may_exec=True),
        await site.token("bob", "operator"),
    )
    await guest.page.goto(site.url)
    await guest.page.fill("#token", none)
    await guest.page.get_by_label("With its right exec").check()
    await guest.page.keyboard.press("Enter")
    await expect(guest.page.locator("#sign-in-why")).to_contain_text("bob does not have it")
    await guest.page.fill("#token", both)
    await guest.page.keyboard.press("Enter")
    await expect(guest.page.locator("#who")).to_have_text("ann operator, exec")
    await guest.page.click("#out")
    await expect(guest.page.locator("#token")).to_be_visible()  # the page has been loaded anew
    await guest.sign_in(both)
    await expect(guest.page.locator("#who")).to_have_text("ann operator")


@pytest.mark.parametrize("asked", [False, True])
async def test_a_link_has_the_right_exec_if_it_was_asked_for(
    site: Site, guest: Look, asked: bool
) -> None:
    await guest.page.goto(await link(site, *(["--exec"] if asked else [])))
    await expect(guest.page.locator("#who")).to_have_text(
        "root admin, exec" if asked else "root admin"
    )
    answer = await guest.page.evaluate("""async () => (await fetch("/v1/session/ticket", {
        method: "POST", headers: {"X-Layercake": "1"}, body: JSON.stringify({exec: true})})).status""")
    assert answer == (200 if asked else 403), "a session gives no more than it has"


async def test_a_page_of_a_group_shows_its_nodes_alone(site: Site, guest: Look) -> None:
    await guest.sign_in(await site.token("bob", "operator", "rack1"), "#/rack")
    await expect(guest.page.locator("#who")).to_have_text("bob operator, rack1")
    await expect(guest.page.locator(".legend")).to_contain_text("converged 2")
    assert guest.complaints() == []


async def test_an_expired_session_asks_over_the_page_and_loses_nothing(
    site: Site, guest: Look
) -> None:
    token = await site.token("ann", "operator")
    await guest.sign_in(token, "#/rack")
    await guest.page.fill("#where", "image=IDLE and name in n[0")
    sessions = site.world.head.part(Sessions)
    wall = sessions.wall
    sessions.wall = lambda: wall() + LIFETIME_S
    dialog = guest.page.locator("dialog.sign-in")
    await expect(dialog).to_contain_text(
        "The session is over. Nothing on the page is lost.", timeout=60_000
    )
    sessions.wall = wall
    await guest.page.fill("#token", token)
    await guest.page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await expect(guest.page.locator("#link")).to_have_text("live")
    assert await guest.page.input_value("#where") == "image=IDLE and name in n[0"
    assert guest.complaints() == []


async def test_a_session_ends_with_its_token_and_so_does_what_is_open(
    site: Site, guest: Look
) -> None:
    await guest.sign_in(await site.token("ann", "operator"))
    await site.world.ops.tokens.revoke("ann")
    await expect(guest.page.locator("dialog.sign-in")).to_be_visible(timeout=60_000)
    await guest.page.fill("#token", await site.token("eve", "viewer"))
    await guest.page.keyboard.press("Enter")
    await expect(guest.page.locator("#who")).to_have_text("eve viewer")


async def test_signing_out_ends_the_session(site: Site, guest: Look) -> None:
    await guest.sign_in(await site.token("ann", "operator"))
    cookies = await guest.context.cookies()
    assert [(c["name"], c["httpOnly"], c["secure"], c["sameSite"]) for c in cookies] == [
        ("__Host-layercake", True, True, "Strict")
    ]
    await guest.page.click("#out")
    await expect(guest.page.locator("#token")).to_be_visible()  # the page has been loaded anew
    await expect(guest.page.locator("dialog.sign-in")).to_be_visible()
    async with client() as other:
        headers = {**OWN, "Cookie": f"{cookies[0]['name']}={cookies[0]['value']}"}
        async with other.get(f"{site.url}../v1/session", headers=headers) as answer:
            assert answer.status == 401


async def test_what_another_sites_page_sends_is_refused(site: Site) -> None:
    token, origin = await site.token("ann", "operator"), f"https://127.0.0.1:{site.port}"
    base = site.url.removesuffix("/dashboard/")
    evil = {"Origin": "https://evil.example"}
    async with client() as browser:
        for headers in ({}, OWN, {"Origin": origin}, {**OWN, **evil}):
            async with browser.post(
                f"{base}/dashboard/session", json={"token": token}, headers=headers
            ) as answer:
                assert answer.status == 403, headers
        async with browser.post(
            f"{base}/dashboard/session", json={"token": token}, headers={**OWN, "Origin": origin}
        ) as answer:
            assert answer.status == 200 and "token" not in await answer.json()
        for headers in ({}, OWN, {"Origin": origin}, {**OWN, **evil}):
            async with browser.post(
                f"{base}/v1/power", json={"range": "n00", "action": "off"}, headers=headers
            ) as answer:
                assert answer.status == 403, headers
        async with browser.get(f"{base}/v1/nodes") as answer:
            assert answer.status == 403
        for headers in ({}, evil):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await browser.ws_connect(f"{base}/v1/events/ws", headers=headers)
            assert refused.value.status == 403
        async with browser.ws_connect(f"{base}/v1/events/ws", headers={"Origin": origin}):
            pass
    assert site.world.node("n00").node.state == "up"


async def test_the_audit_log_names_who_is_signed_in(site: Site, guest: Look) -> None:
    await guest.sign_in(await site.token("ann", "operator"), "#/node/n06")
    await guest.page.get_by_role("button", name="Power on").click()
    await guest.page.get_by_role("button", name="Power on 1 node").click()
    await expect(guest.page.locator("#said")).to_have_text("Power on: n06")
    [record] = [
        r
        for r in await site.world.head.part(Audit).read(0, 0.0, 100)
        if r.request == "POST /v1/power"
    ]
    assert (record.by, record.kind, record.role, record.status) == ("ann", "token", "operator", 200)
    assert record.address == "127.0.0.1" and "Chrome" in record.program


async def test_the_files_are_for_everybody_and_hold_nothing_of_the_site(site: Site) -> None:
    async with client() as browser:
        async with browser.get(f"{site.url}../") as answer:
            assert (
                str(answer.url) == site.url and answer.headers["Content-Security-Policy"] == POLICY
            )
            page, mark = await answer.text(), answer.headers["ETag"]
            assert (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]) == (
                "no-cache",
                "nosniff",
            )
            assert answer.headers["Referrer-Policy"] == "no-referrer"
        async with browser.get(site.url, headers={"If-None-Match": mark}) as answer:
            assert answer.status == 304
        version = page.partition('src="')[2].partition("/")[0]
        for name, kind in (
            ("main.js", "text/javascript"),
            ("base.css", "text/css"),
            ("icon.svg", "image/svg+xml"),
        ):
            async with browser.get(f"{site.url}{version}/{name}") as answer:
                assert (
                    answer.content_type == kind and "immutable" in answer.headers["Cache-Control"]
                )
        for path in (
            f"{version}/..%2fpages.py",
            f"{version}/index.html",
            "0123/main.js",
            f"{version}/../../../etc/passwd",
        ):
            async with browser.get(site.url + path) as answer:
                assert answer.status == 404, path
    for policy in ("unsafe-inline", "unsafe-eval", "http:", "*"):
        assert policy not in POLICY
