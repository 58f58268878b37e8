"""The pictures of README.md, made of a running simulation: `python -m tests.docs.pictures
DIRECTORY`.

layercake sim run --dir /tmp/shown --nodes 200 --bad-bmc 4% --dark rack0003 --at 60s --for 1h
layercake --socket /tmp/shown/api.sock image roll rack0001 two --batch 4 --yes --timeout 1 nsenter
--net=/proc/PID/ns/net python -m tests.docs.pictures /tmp/shown     # PID is that of
layercake.sim.play"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from layercake.cli.watch import FIELDS, Rack, picture
from layercake.client.http import Client
from layercake.client.output import Output
from layercake.client.target import Target
from tests.support.dashboard import chromium

PLACE = Path(__file__).resolve().parents[2] / "docs/pictures"
WIDTH, HEIGHT, EXPLAINED = 112, 30, 14
WINDOW = ViewportSize(width=1180, height=820)
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_SIGNED_IN = "#link.live"


def drawn(
    lines: list[str], title: str, name: str, *, wrapped: bool = True, width: int = WIDTH
) -> None:
    """Writes lines with colours (ANSI) as an SVG that looks like a terminal and loads no font from
    elsewhere. `wrapped`: lines that are too long go on in the next one, as a terminal does it;
    otherwise they are cut, as `watch` does it."""
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False
    )
    for line in lines:
        console.print(Text.from_ansi(line, no_wrap=not wrapped))
    svg = _FONTS.sub(
        "", console.export_svg(title=title, theme=MONOKAI, unique_id=Path(name).name)
    ).replace("Fira Code", "monospace")
    (PLACE / f"{name}.svg").write_text(svg)


def typed(socket: Path, words: str, width: int = WIDTH) -> list[str]:
    """The lines that a command prints on a terminal of that width, in colours. Its status may be 1:
    not all nodes are in the desired state."""
    command = f"{sys.executable} -m layercake.cli.main --socket {socket} {words}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color"},
    )
    return done.stdout.replace("\r", "").splitlines()


def explained(socket: Path) -> list[str]:
    """The first causes that `layercake explain` prints on a terminal, none of them cut."""
    lines = typed(socket, "explain")[:EXPLAINED]
    last = max(
        number for number, line in enumerate(lines) if "read:" in line
    )  # the last line of a cause
    return lines[: last + 1]


def watched(socket: Path) -> list[str]:
    """What `layercake watch` shows on a terminal of that size, at this moment."""
    head, rack, out = Client(Target(socket=str(socket))), Rack(), Output()
    out.colour = True
    rack.apply_answer(head.get("/v1/nodes", fields=FIELDS, since=""))
    rolls = head.get("/v1/rolls")["rolls"]
    return picture(rack, head.get("/v1/status"), head.get("/v1/causes"), rolls, out, WIDTH, HEIGHT)


async def view(page: Page, fragment: str, shown: str, name: str) -> None:
    """A view of the dashboard as a PNG."""
    await page.evaluate("fragment => { location.hash = fragment; }", fragment)
    await page.wait_for_selector(shown)
    await page.wait_for_timeout(1500)  # what it animates has come to rest
    await page.screenshot(path=str(PLACE / f"{name}.png"))


async def dashboard(browser: Browser, link: str) -> None:
    """The first page."""
    page = await (await browser.new_context(viewport=WINDOW)).new_page()
    await page.goto(link)
    await page.wait_for_selector(_SIGNED_IN)
    await view(page, "#/", ".cause", "dashboard")


async def main(directory: Path) -> None:
    """All pictures."""
    socket = directory / "api.sock"
    drawn(explained(socket), "layercake explain", "explain")
    drawn(watched(socket), "layercake watch", "watch", wrapped=False)
    words = [
        sys.executable,
        "-m",
        "layercake.cli.main",
        "--socket",
        str(socket),
        "dashboard",
        "--json",
    ]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    async with chromium(directory / "pki") as browser:
        await dashboard(browser, told["url"])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
