"""Whatever breaks, nothing is lost and nothing is done twice: heads, their store and the lines
between them are broken again and again while people change things, and a checker counts.

    python -m tests.bench.chaos [--rounds N] [--seed S] [--heads 2|3] [--nodes N] [--only FAULT]

Heads are whole ones, the store is a real etcd of three members, nodes and BMCs are simulated
(layercake.sim); all of it is in a network namespace. Each head and each member has a disk of its
own, for which it needs root: faults of disks are left out without. A round: people change entries
of nodes, of one and of many at once, have nodes carry out commands, release a node, replace a
node's board, order power cycles and roll an image, and in the middle of that a fault begins and
ends (FAULTS). Then all is let come up again, and what is so is compared with what people were told:
acknowledged changes, commands and releases that are lost, refused ones that are done, commands,
releases and power actions done twice, nodes touched that nobody asked for, and two heads that act
at once. `recovered_s` is from the end of a fault until a head accepts a change. Prints a table and
one JSON object last; the exit status is 1 if anything was counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from layercake.base.tcp_listener import raise_file_limit
from layercake.sim import namespace
from layercake.sim.play import Options
from tests.bench._chaosfaults import FAULTS, NEED_DISKS
from tests.bench._chaossite import Site

FAST = {"guard.site_boots": 1000, "guard.boots": 100, "guard.power_ons": 1000}


async def run(arguments: argparse.Namespace, base: Path) -> dict[str, Any]:
    """All rounds; the figures."""
    namespace.set_up()
    raise_file_limit()
    dice = random.Random(arguments.seed)
    options = Options(
        directory=str(base / "site"),
        nodes=arguments.nodes,
        heads=arguments.heads,
        firmware_s=0.5,
        kernel_s=0.2,
        changes=dict(FAST),
    )
    site = Site(base, options, dice)
    took: dict[str, list[float]] = defaultdict(list)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    try:
        await site.start()
        names = [
            name for name in arguments.only or FAULTS if not (site.disks and name in NEED_DISKS)
        ]
        order = [
            name for _ in range(0, arguments.rounds, len(names)) for name in _mixed(names, dice)
        ]
        for name in order[: arguments.rounds]:
            before = Counter(site.checker.faults)
            try:
                took[name].append(await site.round(FAULTS[name]))
            except TimeoutError as error:
                site.checker.fault("stuck", f"after {name}: {error}")
            found[name] += site.checker.faults - before
            print(name, [round(t, 1) for t in took[name][-1:]], dict(found[name]), flush=True)
            if site.checker.faults["stuck"]:
                break
    finally:
        await site.stop()
        if arguments.logs:
            shutil.copytree(base / "logs", arguments.logs, dirs_exist_ok=True)
    return _shown(site, took, found)


def _mixed(names: list[str], dice: random.Random) -> list[str]:
    return dice.sample(names, len(names))


def _shown(
    site: Site, took: dict[str, list[float]], found: dict[str, Counter[str]]
) -> dict[str, Any]:
    kinds = ("lost", "refused_done", "done_twice", "touched", "two_at_once", "stuck")
    print(
        f"{'fault':<20}{'rounds':>7}{'recovered_s (most)':>20}" + "".join(f"{k:>14}" for k in kinds)
    )
    for name in sorted(found):
        most = f"{max(took[name], default=float('nan')):.1f}"
        counts = "".join(f"{found[name][kind]:>14}" for kind in kinds)
        print(f"{name:<20}{len(took[name]):>7}{most:>20}{counts}")
    for text in site.checker.said[:40]:
        print(text)
    seen = {key: site.checker.counts[key] for key in sorted(site.checker.counts)}
    return {**{kind: site.checker.faults[kind] for kind in kinds}, "seen": seen}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heads", type=int, default=2, choices=(2, 3))
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--only", action="append", choices=sorted(FAULTS))
    parser.add_argument("--logs", default="", help="a directory that the logs are left in")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        with tempfile.TemporaryDirectory(prefix="layercake-chaos-") as directory:
            words = [sys.executable, "-m", "tests.bench.chaos", *sys.argv[1:], "--inside"]
            mounts = ["unshare", "--mount", "--"]
            command = namespace.command([*mounts, *words, directory])
            return subprocess.run(command, check=False).returncode
    result = asyncio.run(run(arguments, Path(arguments.inside)))
    print(json.dumps(result))
    return int(any(value for key, value in result.items() if key != "seen"))


if __name__ == "__main__":
    sys.exit(main())
