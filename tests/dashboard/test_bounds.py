"""Two hundred dashboards, and browsers that stall: the head stays as it is. Sockets play them: a
Chromium is too polite."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from layercake.base.tally import EventBudget
from layercake.dashboard.pages import PATH
from layercake.features.events import routes
from layercake.fleet import events
from tests.support.dashboard import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
DASHBOARDS = 200
EVENTS, STALLED = 6000, 3


def rss() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def asks_and_stalls(port: int, request: str) -> ssl.SSLSocket:
    """A browser that asks for events and then reads no more."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", port))
    found = context.wrap_socket(plain)
    found.sendall(request.encode())
    assert b" 101 " in found.recv(64)
    return found


async def opened(
    site: Site, token: str
) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    """A dashboard as a browser opens it: the page, its files, a session, the nodes, the events."""
    base = site.url.removesuffix(PATH)
    browser = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False, limit=6),
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers={"X-Layercake": "1", "Origin": base},
    )
    async with browser.get(site.url) as answer:
        version = (await answer.text()).partition('src="')[2].partition("/")[0]
    for name in ("main.js", "base.css"):
        async with browser.get(f"{site.url}{version}/{name}") as answer:
            assert answer.status == 200
    async with browser.post(f"{site.url}session", json={"token": token}) as answer:
        assert answer.status == 200
    async with browser.get(f"{base}/v1/nodes") as answer:
        assert len((await answer.json())["nodes"]) == 8
    return browser, await browser.ws_connect(f"{base}/v1/events/ws")


async def test_two_hundred_dashboards_of_one_token_and_one_address(site: Site) -> None:
    token = await site.token("wall", "viewer")
    found = []
    for _ in range(DASHBOARDS // 20):
        found += await asyncio.gather(*(opened(site, token) for _ in range(20)))
    try:
        site.world.head.store.event(site.world.node("n03"), events.NODE_EVENT, "told to all")
        for _, stream in found:
            async with asyncio.timeout(60):
                while not any(
                    e["node"] == "n03" for e in json.loads((await stream.receive()).data)["events"]
                ):
                    pass
    finally:
        for browser, stream in found:
            await stream.close()
            await browser.close()


async def test_a_browser_that_stalls_costs_no_memory_and_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STUCK_S", 2.0)
    token, base = await site.token("wall", "operator"), site.url.removesuffix(PATH)
    good, live = await opened(site, token)
    async with good.post(f"{site.url}session", json={"token": token}) as answer:
        cookie = answer.cookies["__Host-layercake"].value
    request = (
        f"GET /v1/events/ws HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nOrigin: "
        f"{base}\r\nConnection: Upgrade\r\n"
        f"Upgrade: websocket\r\nCookie: __Host-layercake={cookie}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    stalled = [await asyncio.to_thread(asks_and_stalls, site.port, request) for _ in range(STALLED)]
    site.world.head.store.budget = EventBudget(site.world.clock, at_once=1e9)
    listening, before, got = site.world.head.store.listening, rss(), 0
    for number in range(EVENTS):
        site.world.head.store.event(
            site.world.node("n03"), events.NODE_EVENT, f"{number} " + "x" * 1900
        )
        if number % 500 == 499:
            async with asyncio.timeout(60):
                while got <= number:
                    got += sum(
                        e["node"] == "n03"
                        for e in json.loads((await live.receive()).data)["events"]
                    )
    async with asyncio.timeout(60):
        while site.world.head.store.listening > listening - len(stalled):
            await asyncio.sleep(0.02)
    assert rss() - before < 100 << 20, "what stalled browsers did not read is not kept"
    for one in stalled:
        one.close()
    await live.close()
    await good.close()
