"""The pictures of docs/howto/dashboard.md, made anew: `python -m tests.dashboard.pictures`. A night
on which a rack is silent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from playwright.async_api import Browser

from layercake.kraken.converge import Failed
from layercake.modules.manager import ServiceState
from tests.dashboard.test_console import connected
from tests.support.dashboard import (
    NARROW,
    Look,
    Site,
    certify,
    chromium,
    inventory,
    looking,
    serving,
)
from tests.support.rollnodes import a_site

PLACE = Path(__file__).resolve().parents[2] / "docs/pictures/dashboard"
NODES, RACKS = 240, 6
DARK, BAD, NEW = range(120, 160), range(70, 77), range(200, 212)
STEPS = (
    "boot.discover-seen",
    "boot.offer-sent",
    "boot.nbp-sent",
    "boot.script-sent",
    "boot.kernel-sent",
    "boot.hardware-sent",
    "boot.initrd-sent",
)


def name(number: int) -> str:
    """Of a node."""
    return f"n{number:02d}"


def night(site: Site) -> None:
    """What happens: all are up but some whose BMC refuses the password, and some that boot; then a
    rack is silent."""
    world, up = site.world, [i for i in range(NODES) if i not in BAD and i not in NEW]
    site.up(*map(name, up))
    for i in BAD:
        record = world.node(name(i))
        for _ in range(400):
            if record.machine.quarantine is None and record.machine.active is not None:
                world.head.engine.post(
                    record,
                    Failed(
                        record.machine.active.mutation,
                        record.machine.active.attempt,
                        f"the BMC at 10.2.0.{i} refuses the password of root",
                    ),
                )
            if record.machine.quarantine is not None:
                break
            world.tick(5)
            site.up(*map(name, up))
    for _ in range(20):
        world.tick(5)
        site.up(*(name(i) for i in up if i not in DARK))
    node = world.node(name(203))
    for number, step in enumerate(STEPS):
        world.head.store.event(
            node,
            world.head.table.events[step],
            STEP_TEXTS[number],
            at=world.clock() - 40 + number**1.6,
        )


STEP_TEXTS = (
    "iPXE asks for something to boot",
    "10.1.0.203 and snponly.efi",
    "snponly.efi, 174 kB by TFTP",
    "its boot script",
    "vmlinuz, 8.2 MB in 1.1 s",
    "hardware.img, 3.0 MB",
    "minos.img, 8.1 MB in 0.9 s",
)


async def picture(look: Look, view: str, shown: str, file: str) -> None:
    """A view as a file."""
    await look.view(view)
    await look.page.wait_for_selector(shown)
    await look.page.wait_for_load_state("networkidle")
    await look.page.wait_for_timeout(800)
    await look.page.screenshot(path=str(PLACE / file))
    print(file, (PLACE / file).stat().st_size)


async def views(browser: Browser) -> None:
    """All views but that of a roll."""
    async with serving(inventory(NODES, racks=RACKS), time.time() - 3000) as site:
        for module in site.world.head.modules.services.status.values():
            module.state = ServiceState.RUNNING  # this head has none
        night(site)
        token = await site.token("ann", "operator")
        async with looking(browser, site) as look:
            await look.page.goto(site.url)
            await look.page.wait_for_selector("dialog")
            await look.page.screenshot(path=str(PLACE / "sign-in.png"))
            await look.sign_in(token)
            await picture(look, "#/", ".cause", "wrong.png")
            await picture(look, "#/rack", ".grid", "rack.png")
            await picture(look, f"#/node/{name(203)}", "table.boot", "node.png")
            await picture(look, "#/events", ".events li", "events.png")
            await look.view(f"#/rack?range={name(70)},{name(71)}")
            await look.page.get_by_role("button", name="Power cycle").click()
            await look.page.wait_for_selector("dialog")
            await look.page.screenshot(path=str(PLACE / "question.png"))
        async with looking(browser, site, dark=True) as look:
            await look.sign_in(token)
            await picture(look, "#/rack", ".grid", "rack-dark.png")
        async with looking(browser, site, size=NARROW, dark=True) as look:
            await look.sign_in(token)
            await picture(look, "#/", ".cause", "wrong-narrow.png")


BOOT = (
    b"[    0.000000] Linux version 6.1.0-32-amd64\r\n[    0.004000] Command line: "
    b"layercake.node=n203 console=ttyS0,115200\r\n"
    b"[    1.310000] \x1b[32mminos\x1b[0m: eth0 is up, 1000 Mb/s\r\n"
    b"[    2.020000] \x1b[33mminos\x1b[0m: no answer of 10.1.0.1, again\r\n"
    b"[    3.040000] minos: joined as n203\r\n\r\nn203 login: "
)


async def console(browser: Browser, folder: Path) -> None:
    """A console in which somebody types."""
    async with (
        serving(inventory(NODES, racks=RACKS)) as site,
        connected(site, folder, name(203)) as (serial, _),
    ):
        site.up(name(203))
        await serial.write(BOOT)
        async with looking(browser, site) as look:
            await look.sign_in(
                await site.token("ann", "operator", may_exec=True),
                f"#/node/{name(203)}",
                may_exec=True,
            )
            await look.page.get_by_text("Console", exact=True).click()
            await look.page.get_by_role("button", name="Type").click()
            await look.page.get_by_text("you have the keyboard").wait_for()
            await look.page.wait_for_timeout(800)
            await look.page.locator("details.console").screenshot(path=str(PLACE / "console.png"))


async def roll(browser: Browser, folder: Path) -> None:
    """A roll in its batches, one of whose nodes has failed."""
    certify(folder)
    async with a_site(folder, 60, time.time()) as cluster:
        site = Site(cluster.world, folder)
        await site.start()
        try:
            cluster.agents["n17"].bad = "two"
            await cluster.start("@all", "two", batch="8", health_s=3.0, on_failure="pause")
            for _ in range(60):
                await cluster.step()
                if cluster.roll(1)["counts"].get("failed"):
                    break
            async with looking(browser, site) as look:
                await look.sign_in(await site.token("ann", "operator"))
                await picture(look, "#/rolls/1", ".squares", "roll.png")
        finally:
            await site.stop()


async def main() -> None:
    """Everything."""
    import tempfile

    PLACE.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        await views(browser)
        with tempfile.TemporaryDirectory(prefix="lcd") as folder:
            await console(browser, Path(folder))
            await roll(browser, Path(folder) / "roll")


if __name__ == "__main__":
    asyncio.run(main())
