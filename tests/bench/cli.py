"""How long the command line takes, whole processes: `ratio` is `layercake --version` over a Python
that imports click and json; `list10k_s` lists 10,000 nodes, `list_small_ms` four, of a head that
has its answer ready. Medians; prints one JSON object last.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.cli.canned_api import CannedApi, node_view

LAYERCAKE = str(Path(sys.executable).with_name("layercake"))
VERSION = [LAYERCAKE, "--version"]
PYTHON = [sys.executable, "-c", "import click, json"]
ROUNDS = 21
CONTAINER = {
    "name": "debian",
    "digest": "blake2b:" + "a" * 64,
    "state": "running",
    "health": "healthy",
    "pid": 7,
    "started_s": 65.0,
    "retries": 0,
    "last_error": "NOERROR",
    "error": "",
    "retry_in_s": None,
}


def timed(command: list[str]) -> float:
    """The seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def rack(count: int) -> list[dict[str, Any]]:
    """Nodes as the API shows them."""
    image = {"name": "debian", "digest": CONTAINER["digest"]}
    return [
        node_view(
            f"n{i:05}",
            ip=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}",
            containers=[CONTAINER],
            groups=["rack1", "ipmi"],
            images={"wanted": [image], "running": [image]},
            boot_id="b" * 36,
        )
        for i in range(count)
    ]


def listed(socket: Path, count: int, rounds: int) -> float:
    """The seconds that `layercake node list` takes of so many nodes."""
    head = CannedApi()
    # The answer is made once: the benchmark is of the client.
    head.answers["GET /v1/nodes"] = (
        200,
        json.dumps({"variables": list(node_view()["state"]), "nodes": rack(count)}),
    )
    head.start(socket)
    try:
        command = [LAYERCAKE, "--socket", str(socket), "node", "list"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert len(said.splitlines()) == count + 1
        return statistics.median(timed(command) for _ in range(rounds))
    finally:
        head.stop()


def main() -> None:
    """Measures and prints."""
    pairs = [(timed(VERSION), timed(PYTHON)) for _ in range(ROUNDS)]
    version, python = (statistics.median(times) for times in zip(*pairs, strict=True))
    with tempfile.TemporaryDirectory(prefix="lc") as directory:
        small = listed(Path(directory) / "a.sock", 4, ROUNDS)
        large = listed(Path(directory) / "b.sock", 10_000, 5)
    print(
        json.dumps(
            {
                "version_ms": round(version * 1000),
                "python_ms": round(python * 1000),
                "ratio": round(version / python, 2),
                "list_small_ms": round(small * 1000),
                "list10k_s": round(large, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
