"""What minOS weighs: the initramfs, whole and by part, and the agent's memory on an idle node.

The initramfs is built here from the distribution's packages. The agent's memory is read on this
host, from an agent that runs one small image under Debian's Python, as it does on a node. Prints
one JSON object last.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import CACHE
from hostnode import HeadNamespace

from minos.build import BuildOptions, build
from tests.bench import roll


def agent_rss_kb() -> int:
    """Resident kB of an idle agent."""
    namespace = HeadNamespace()
    namespace.up()
    try:
        argv = [sys.executable, "-m", "tests.bench.minos", "--inside", namespace.name]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"cannot measure the agent:\n{done.stdout}{done.stderr}")
        return int(done.stdout.splitlines()[-1])
    finally:
        namespace.down()


def main() -> None:
    """Builds, measures, prints."""
    if sys.argv[1:2] == ["--inside"]:
        namespace = roll.enter(sys.argv[2])
        with tempfile.TemporaryDirectory(prefix="layercake-bench-") as directory:
            print(asyncio.run(roll.host_rolls(Path(directory), namespace, 0)).rss_kb)
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="layercake-bench-") as directory:
        result = build(BuildOptions(Path(directory), CACHE))
    parts = {name: part.packed for name, part in result.parts.items()}
    print(
        json.dumps(
            {
                "initramfs_bytes": result.initramfs_bytes,
                "parts": parts,
                "agent_rss_kb": agent_rss_kb(),
            }
        )
    )


if __name__ == "__main__":
    main()
