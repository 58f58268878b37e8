"""What the files of many nodes cost the head. `python -m tests.bench.files [N ...]`.

A whole head that is not started, with N nodes that have ten templates each. `cpu_s` is the
processor's seconds, of the head and of the process that renders (`child_cpu_s` of it), until all
nodes have asked for their files once, as the route of the nodes does it; `stall_ms` is how long the
loop stood still at most. `change_*`: one source is another, the inventory is applied, and all ask
again. `reload_p50_ms` and `reload_p99_ms`: real agents on this host, eight of them, with an image
each; from the apply of another content of a file to the node's word that it is written and the
image's first process has its signal, on the head's clock. `calibration_s` is a fixed loop of pure
Python, `*_rel` a figure divided by it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

from layercake.features.files.node_files import NodeFiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import HostSite
from smallimages import build_plain_image

from layercake.agents import pki
from layercake.base.process import THRESHOLDS
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from tests.bench._history import quantile
from tests.bench.engine import calibration
from tests.bench.plan import ADDRESS, inventory, measured
from tests.support.operations import Operations

FILES = 10
HOSTS, RELOADS = 8, 15
TEXT = (
    "# file {n} of {{{{ node.name }}}}\n{{% for mac in node.macs %}}\nmac {{{{ mac }}}}\n{{% "
    "endfor %}}\n"
    "address={{{{ node.ip }}}}\n" + 20 * "a line\n"
)


def site(count: int) -> str:
    """The inventory."""
    files = ", ".join(f"/etc/f{n}: {{source: f{n}.j2}}" for n in range(FILES))
    return f"defaults: {{files: {{{files}}}}}\n" + inventory(count, each=False)


async def ask(head: Head) -> None:
    """All nodes ask."""
    for record in list(head.store):
        manifest = await head.part(NodeFiles).manifest(record)
        told = await asyncio.to_thread(head.part(NodeFiles).for_node, manifest)
        if manifest.errors or len(told) < FILES:
            raise SystemExit(f"{record.name}: {manifest.errors}")


async def run(directory: Path, count: int) -> dict[str, float]:
    """One size."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    sources = directory / "site"
    sources.mkdir()
    for n in range(FILES):
        (sources / f"f{n}.j2").write_text(TEXT.format(n=n))
    head = Head(
        directory,
        Settings(
            interface="lo",
            address=ADDRESS,
            prefix=10,
            sections={"files": {"directory": str(sources)}},
        ),
    )
    sys.setswitchinterval(THREAD_S)
    gc.set_threshold(*THRESHOLDS)
    changes, found = Operations(head).inventory, dict[str, float]()
    await changes.apply(site(count), "bench.yaml", None, False)
    async with measured(head, found, "first"):  # with a host key for each node
        await ask(head)
        await head.part(NodeFiles).close()  # what a process took counts when it has ended
    (sources / "f0.j2").write_text("other\n" + TEXT.format(n=0))
    async with measured(head, found, "change"):
        await changes.apply(site(count), "bench.yaml", None, False)
        await ask(head)
        await head.part(NodeFiles).close()
    await head.database.close(head.store)
    return found


def reloads() -> dict[str, float]:
    """From a changed file to what is done about it, on real agents."""
    with tempfile.TemporaryDirectory(prefix="layercake-files-") as scratch:
        place = Path(scratch)
        hosts = HostSite(
            place / "site", HOSTS, {"one": build_plain_image(place / "one.squashfs", "one")}
        )
        took: list[float] = []
        try:
            hosts.up()
            for number in range(RELOADS + 1):
                entry = f'{{content: "number {number}\\n", on_change: signal HUP}}'
                text = f"defaults: {{files: {{/etc/app.conf: {entry}}}}}\n" + hosts.inventory("one")
                start = time.time()
                hosts.api(
                    "POST",
                    "/v1/inventory/apply",
                    {"yaml": text, "file": "site.yaml", "allow_remove": False},
                )

                def written(since: float = start) -> list[float]:
                    told = hosts.api("GET", "/v1/events?limit=500&kind=node.files-written")[
                        "events"
                    ]
                    return [e["at"] - since for e in told if e["at"] >= since]

                hosts.wait("all have the file", lambda: len(written()) >= HOSTS, 60)
                took += written() if number else []
        finally:
            hosts.down()
    ms = [1000 * seconds for seconds in took]
    return {
        "reload_p50_ms": round(quantile(ms, 0.5), 1),
        "reload_p99_ms": round(quantile(ms, 0.99), 1),
    }


def main() -> None:
    """One size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="*")
    options = parser.parse_args()
    unit = calibration()
    told = {"calibration_s": round(unit, 3)}
    for count in options.count or (1_000, 10_000):
        with tempfile.TemporaryDirectory(prefix="layercake-files-") as scratch:
            found = asyncio.run(run(Path(scratch), count))
        found |= {
            name.replace("_s", "_rel"): value / unit
            for name, value in found.items()
            if name.endswith("cpu_s")
        }
        print(
            f"{count} nodes: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        )
        told |= {f"n{count}_{name}": round(value, 3) for name, value in found.items()}
    print(json.dumps(told | reloads()))


if __name__ == "__main__":
    main()
