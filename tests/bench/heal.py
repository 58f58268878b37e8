"""One machine of two dies (its QEMU is killed): how soon that is noticed, and how soon it runs its
image again.

`boot_s` is the same machine from `node on` to its running image, while the other one runs.
`noticed_s` is from the kill until the head says that the node is lost; silence counts from 15 s on.
`healed_s` is from there to the running image, and `ratio` is healed_s over boot_s: what healing
costs beside the boot itself. The other machine must not be touched. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from sampleimages import plain_image
from vrack.rack import Rack

from tests.bench._history import median

LIMIT_S = 400.0


def switched(head: HeadRun, state: str) -> float:
    """Seconds until n0 is as it is wanted now."""
    start = time.monotonic()
    head.api("POST", "/v1/nodes/state", {"range": "n0", "state": state})
    head.wait_converged(LIMIT_S)
    return time.monotonic() - start


def turn(rack: Rack, head: HeadRun) -> dict[str, float]:
    """A boot, and a death."""
    switched(head, "off")
    boot = switched(head, "up")
    other = (rack.machine(1)["starts"], head.nodes()["n1"]["boot_id"])
    killed, start = time.time(), time.monotonic()
    rack.kill_vm(0)
    head.wait(
        "it is noticed",
        lambda: [e for e in head.history("n0", "sync.lost") if e["at"] >= killed],
        LIMIT_S,
    )
    noticed = time.monotonic() - start
    head.wait_converged(LIMIT_S)
    if other != (rack.machine(1)["starts"], head.nodes()["n1"]["boot_id"]):
        raise SystemExit("the other machine was touched")
    return {"boot_s": boot, "noticed_s": noticed, "healed_s": time.monotonic() - start - noticed}


def main() -> None:
    """Runs the turns and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="layercake-bench-"))
    rack = Rack(scratch / "rack", 2)
    head = HeadRun(rack, scratch / "head")
    turns: list[dict[str, float]] = []
    try:
        image = plain_image("plain-1")
        rack.up()
        head.init()
        head.start()
        head.api(
            "POST",
            "/v1/images",
            {"path": str(image), "name": "plain-1", "systemd": False, "command": ["/init"]},
        )
        head.apply(rack.inventory(images=["plain-1"]))
        head.wait_converged(LIMIT_S)
        for number in range(options.turns):
            turns.append(turn(rack, head))
            print(
                f"turn {number + 1}: " + ", ".join(f"{k} {v:.1f}" for k, v in turns[-1].items()),
                flush=True,
            )
    finally:
        head.close()
        rack.down()
        shutil.rmtree(scratch, ignore_errors=True)
    found: dict[str, Any] = {k: round(median([t[k] for t in turns]), 1) for k in turns[0]}
    print(
        json.dumps(
            {**found, "ratio": round(median([t["healed_s"] / t["boot_s"] for t in turns]), 2)}
        )
    )


if __name__ == "__main__":
    main()
