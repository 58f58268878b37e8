"""The dashboard over ten thousand nodes, in a real Chromium. `python -m tests.bench.dashboard [N]`.

A head and its API over TLS in one process, whose nodes are in sync and speak by datagrams; the
browser is another, and what plays fifty open pages is a third: it has their WebSockets, and asks
what they ask when they ask it (web/fleet.js, web/wrong.js; a third of them looks at the causes).
`interactive_s` is from the click on a bookmark of the rack, with nothing in the browser's cache,
until all nodes are painted and the page answers a key, the median of COLD (`first_s` the first,
which has the head put all nodes into words); `kb` is what was transferred until then, `files_kb`
the page's own files of it. `pixel_p99_ms` is from the datagram of a node, over SAMPLES of them,
until the colour of its cell is another; `busy_pixel_p99_ms` the same while 1,000 nodes a second
change. `core` is how much of a core the head takes meanwhile with 50 pages open, `core_alone`
without any. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from playwright.async_api import Browser, Page

from layercake.agents import pki
from layercake.head.life import THREAD_S
from tests.bench._history import quantile
from tests.support.api import token
from tests.support.bad_night import inventory
from tests.support.dashboard import Look, chromium, looking
from tests.support.world import World

NODES, COLD = 10_000, 3
SAMPLES = 200
PAGES = 50
CHANGES = 1000
SECONDS = 10.0
STEP_S = 0.02
OWN = {"X-Layercake": "1"}
CHANGE: dict[aiohttp.ClientSession, str] = {}
"""The last change that each page of the rack was told of."""


class Fleet:
    """Nodes that change what they say of `busy`, so that nothing is done about it, or of `run`, so
    that their colour is another."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._names = [f"n{i:05d}" for i in range(count)]
        self._at = 0
        self._busy = False
        for name in self._names:
            world.attach(name)
            self.say(name)

    def say(self, name: str, *, image: str = "IDLE", busy: str = "FREE") -> None:
        """A datagram of a node."""
        self._world.send(self._world.hello(name, image=image, busy=busy))

    async def change(self, per_s: float) -> None:
        """So many nodes a second say that they are busy, or free."""
        due = time.perf_counter()
        while True:
            for _ in range(round(per_s * STEP_S)):
                self._at = self._at % (len(self._names) - 1) + 1  # the first is looked at
                if self._at == 1:
                    self._busy = not self._busy
                self.say(self._names[self._at], busy="BUSY" if self._busy else "FREE")
            due += STEP_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def serve(directory: Path, count: int) -> None:
    """The head: does what lines of its input say, and answers each with one."""
    sys.setswitchinterval(THREAD_S)
    pki.create(directory / "pki", "127.0.0.1")
    world = World(directory)
    world.settings = msgspec.structs.replace(world.settings, socket=str(directory / "api.sock"))
    world.head.settings = world.settings
    world.open()
    await world.ops.inventory.apply(inventory(count), "rack.yaml", None, True)
    fleet, api = Fleet(world, count), world.head.api()
    await world.head.database.flush(world.head.store)
    await api.start()
    bearer = (await token(world.head, "bench", "operator"))["Authorization"].partition(" ")[2]
    print(json.dumps({"port": api.port, "token": bearer}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    changing: asyncio.Task[None] | None = None
    while line := (await reader.readline()).split():
        if line[0] == b"say":
            at = time.time()
            fleet.say(line[1].decode(), image=line[2].decode())
            print(at, flush=True)
        else:
            if changing is not None:
                changing.cancel()
            changing = asyncio.create_task(fleet.change(float(line[1]))) if float(line[1]) else None
            print(time.process_time(), flush=True)


class Head:
    """The head's process, as the bench speaks with it."""

    def __init__(self, directory: Path, count: int, module: str = "tests.bench.dashboard") -> None:
        argv = [sys.executable, "-m", module, "--head", str(directory), str(count)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = json.loads(self._line())
        self.url = f"https://127.0.0.1:{self.facts['port']}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def tell(self, *words: object) -> float:
        """Has it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return float(self._line())

    def end(self) -> None:
        """It is not needed any more."""
        with self._process:  # closes its pipes, and waits
            self._process.kill()


# -- the browser

_WATCH = """
([x, y]) => {
    const canvas = document.querySelector(".grid canvas"), pen = canvas.getContext("2d"), scale = devicePixelRatio;
    const colour = () => pen.getImageData(x * scale, y * scale, 1, 1).data.join(",");
    const before = colour();
    return new Promise(done => {
        const look = () => colour() === before ? requestAnimationFrame(look) : done(Date.now() / 1000);
        window.watching = true;
        look();
    });
}
"""
_PAINTED = """
count => {
    const told = [...document.querySelectorAll(".legend b")].map(b => Number(b.textContent.replaceAll(",", "")));
    const shown = told.reduce((sum, one) => sum + one, 0);
    return shown === count && Number(document.querySelector(".grid")?.dataset.painted ?? 0) > 0;
}
"""


async def interactive(page: Page, head: Head, count: int) -> dict[str, float]:
    """The page from nothing."""
    sizes: dict[str, float] = {"all": 0.0, "files": 0.0}
    link = await page.context.new_cdp_session(page)
    paths: dict[str, str] = {}
    await link.send("Network.enable")
    link.on(
        "Network.responseReceived",
        lambda found: paths.__setitem__(found["requestId"], found["response"]["url"]),
    )

    def finished(found: dict[str, Any]) -> None:
        sizes["all"] += found["encodedDataLength"]
        sizes["files"] += (
            found["encodedDataLength"]
            if "/dashboard/" in paths.get(found["requestId"], "")
            else 0.0
        )

    link.on("Network.loadingFinished", finished)
    begin = time.perf_counter()
    await page.goto(f"{head.url}/dashboard/#/rack", wait_until="commit")
    await page.wait_for_function(_PAINTED, arg=count, polling="raf")
    await page.focus(".grid")
    await page.keyboard.press("End")
    await page.wait_for_function(
        "name => document.querySelector('#grid-node').textContent.startsWith(name)",
        arg=f"n{count - 1:05d}",
        polling="raf",
    )
    return {
        "interactive_s": time.perf_counter() - begin,
        "kb": sizes["all"] / 1000,
        "files_kb": sizes["files"] / 1000,
    }


async def pixels(page: Page, head: Head, samples: int) -> list[float]:
    """Milliseconds from datagrams to pixels; the first node is turned to and fro."""
    await page.keyboard.press("Home")
    await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    found = []
    for number in range(samples):
        await page.evaluate("window.watching = false")
        seen = asyncio.ensure_future(page.evaluate(_WATCH, [4, 24]))
        await page.wait_for_function("() => window.watching === true", polling="raf")
        at = head.tell("say", "n00000", ("ERROR", "IDLE")[number % 2])
        found.append((await asyncio.wait_for(seen, 30) - at) * 1000)
    return found


# -- what fifty pages do


async def rack_page(browser: aiohttp.ClientSession, url: str) -> float:
    """What a page of the rack asks when something has changed, and for how long it rests then."""
    began, query = (
        time.perf_counter(),
        {"fields": "name,status,wanted,stopped,groups,domains,network,labels"},
    )
    if change := CHANGE.get(browser):
        query["since"] = change
    async with browser.get(f"{url}/v1/nodes", params=query) as answer:
        CHANGE[browser] = msgspec.json.decode(await answer.read())["change"]
    return min(1.0, max(0.06, time.perf_counter() - began))


async def causes_page(browser: aiohttp.ClientSession, url: str) -> float:
    """The same of a page of causes."""
    for path in ("/v1/status", "/v1/causes"):
        async with browser.get(url + path) as answer:
            await answer.read()
    return 1.5


async def page_like(
    url: str, bearer: str, until: float, number: int, counts: dict[str, int]
) -> None:
    """A page: its session, its events, and what it asks for when some have come."""
    await asyncio.sleep(
        number * 0.1
    )  # people do not come all at once, and the door lets an address' strangers in 32 at a time
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False),
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers={**OWN, "Origin": url},
    ) as browser:
        async with browser.post(f"{url}/dashboard/session", json={"token": bearer}) as answer:
            answer.raise_for_status()
        arrived = asyncio.Event()

        async def events() -> None:
            async with browser.ws_connect(f"{url}/v1/events/ws", max_msg_size=0) as socket:
                async for _ in socket:
                    counts["messages"] += 1
                    arrived.set()

        listening = asyncio.create_task(events())
        while time.time() < until:
            arrived.clear()
            rest = await (causes_page if number % 3 == 2 else rack_page)(browser, url)
            counts["asked"] += 1
            await asyncio.sleep(rest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await arrived.wait()
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


async def play(url: str, bearer: str, seconds: float) -> None:
    """All pages."""
    counts = {"messages": 0, "asked": 0}
    await asyncio.gather(
        *(page_like(url, bearer, time.time() + seconds, number, counts) for number in range(PAGES))
    )
    print(json.dumps(counts))


def core(head: Head, pages: bool) -> float:
    """How much of a core the head takes while nodes change, with pages open or without."""
    process = None
    if pages:
        argv = [
            sys.executable,
            "-m",
            "tests.bench.dashboard",
            "--pages",
            head.url,
            head.facts["token"],
            str(SECONDS + 12),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        time.sleep(8)  # they open
    begin, before = time.perf_counter(), head.tell("change", CHANGES)
    time.sleep(SECONDS)
    used = (head.tell("change", 0) - before) / (time.perf_counter() - begin)
    if process is not None:
        out, _ = process.communicate(timeout=300)
        print(f"{PAGES} pages: {out.strip()}")
    return used


@contextlib.asynccontextmanager
async def signed_in(browser: Browser, head: Head, **options: Any) -> AsyncIterator[Look]:
    """A page in a browser that has nothing but a session; with these options of `looking`."""
    async with looking(browser, head, **options) as view:  # type: ignore[arg-type]
        headers, what = {**OWN, "Origin": head.url}, {"token": head.facts["token"]}
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False), headers=headers
            ) as client,
            client.post(f"{head.url}/dashboard/session", json=what) as answer,
        ):
            answer.raise_for_status()
            session = answer.cookies["__Host-layercake"].value
        await view.context.add_cookies(
            [
                {
                    "name": "__Host-layercake",
                    "value": session,
                    "url": head.url,
                    "secure": True,
                    "httpOnly": True,
                    "sameSite": "Strict",
                }
            ]
        )
        yield view


async def look(head: Head, pki_of: Path, count: int) -> dict[str, float]:
    """All that a browser sees."""
    async with chromium(pki_of) as browser:
        times = []
        for _ in range(COLD):
            async with signed_in(browser, head) as view:
                found = await interactive(view.page, head, count)
                times.append(found["interactive_s"])
        found |= {"interactive_s": statistics.median(times), "first_s": times[0]}
        return found | await changes(browser, head, count)


async def changes(browser: Browser, head: Head, count: int) -> dict[str, float]:
    """How soon a change is seen."""
    async with signed_in(browser, head) as view:
        page = view.page
        await interactive(page, head, count)
        await page.wait_for_timeout(3000)  # all that it asks at first has come
        quiet = await pixels(page, head, SAMPLES)
        head.tell("change", CHANGES)
        busy = await pixels(page, head, SAMPLES)
        head.tell("change", 0)
        if view.complaints():
            raise SystemExit(f"the page complains: {view.complaints()[:3]}")
    return {
        "pixel_p50_ms": quantile(quiet, 0.5),
        "pixel_p99_ms": quantile(quiet, 0.99),
        "busy_pixel_p50_ms": quantile(busy, 0.5),
        "busy_pixel_p99_ms": quantile(busy, 0.99),
    }


def main() -> None:
    """Everything, or one of the parts."""
    words = sys.argv[1:]
    if words[:1] == ["--head"]:
        asyncio.run(serve(Path(words[1]), int(words[2])))
        return
    if words[:1] == ["--pages"]:
        asyncio.run(play(words[1], words[2], float(words[3])))
        return
    count = int(words[0]) if words else NODES
    with tempfile.TemporaryDirectory(prefix="lcd") as scratch:
        head = Head(Path(scratch), count)
        try:
            found = asyncio.run(look(head, Path(scratch) / "pki", count))
            found |= {"core_alone": core(head, False), "core": core(head, True)}
        finally:
            head.end()
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


if __name__ == "__main__":
    main()
