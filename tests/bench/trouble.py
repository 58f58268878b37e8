"""The worst night: 10,000 nodes, a third of them dark, a roll under way, and what an administrator
sees of it. Run with `python -m tests.bench.trouble [NODES]`.

The head is one in a process of its own; its nodes are HELLOs. What is planted: the last third is
dark, PLANTED nodes were given up on before that for two reasons, some are in maintenance, and a
roll goes on. `explain_lines` and `explain_s` are of `layercake explain` (the median of RUNS, with
the start of the program), `status_lines` of `layercake status`. `alerts` is what a chat is told from
the first silent node on. `height_px` is the first page at 1280 pixels with all areas that scroll,
`interactive_s` from nothing in the browser's cache until it shows the causes and answers a key,
`pixel_p99_ms` from the datagram of a node until its cell of the rack has another colour.
All node sets that are shown, by the page and by the command line, have to be exactly what is
planted. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench._history import quantile
from tests.bench.dashboard import Head, interactive, pixels, signed_in
from tests.support import first_screen
from tests.support.bad_night import check, serve, shown
from tests.support.dashboard import chromium

NODES, RUNS = 10_000, 5
SAMPLES = 100


def command(socket: Path, *words: str) -> tuple[list[str], float]:
    """The lines that a command prints on a pipe, and how long it takes."""
    argv = [sys.executable, "-m", "layercake.cli.main", *words]
    begin = time.perf_counter()
    environment = {**os.environ, "LAYERCAKE_SOCKET": str(socket)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.stderr:
        raise SystemExit(f"layercake {' '.join(words)}: {done.stderr}")
    return done.stdout.splitlines(), time.perf_counter() - begin


async def page(head: Head, pki_of: Path, count: int) -> dict[str, float]:
    """The first screen; then the rack, in which a node changes."""
    async with chromium(pki_of) as browser, signed_in(browser, head) as view:
        begin = time.perf_counter()
        await view.page.goto(f"{head.url}/dashboard/", wait_until="commit")
        await view.page.wait_for_selector(".cause", state="visible")
        await view.page.keyboard.press("Tab")
        await view.page.evaluate("() => new Promise(requestAnimationFrame)")
        found = {"interactive_s": time.perf_counter() - begin}
        check(await first_screen.sets(view.page), head.facts["truth"], "page")
        found["height_px"] = await first_screen.height(view.page)
        await interactive(view.page, head, count)
        found["pixel_p99_ms"] = quantile(await pixels(view.page, head, SAMPLES), 0.99)
        if view.complaints():
            raise SystemExit(f"the page complains: {view.complaints()[:3]}")
    return found


def main() -> None:
    """Everything, or the head alone."""
    words = sys.argv[1:]
    if words[:1] == ["--head"]:
        asyncio.run(serve(Path(words[1]), int(words[2])))
        return
    count = int(words[0]) if words else NODES
    with tempfile.TemporaryDirectory(prefix="lct") as scratch, contextlib.ExitStack() as stack:
        place = Path(scratch)
        head = Head(place, count, module="tests.bench.trouble")
        stack.callback(head.end)
        runs = [command(place / "api.sock", "explain") for _ in range(RUNS)]
        check(list(shown(runs[0][0])), head.facts["truth"], "explain")
        status, _ = command(place / "api.sock", "status")
        for line in head.facts["alerts"]:
            print(f"alert: {line[:150]}")
        found: dict[str, float] = {
            "explain_lines": len(runs[0][0]),
            "explain_s": statistics.median(seconds for _, seconds in runs),
            "status_lines": len(status),
            "alerts": len(head.facts["alerts"]),
            **asyncio.run(page(head, place / "pki", count)),
        }
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


if __name__ == "__main__":
    main()
