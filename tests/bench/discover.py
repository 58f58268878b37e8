"""How much longer a machine that no inventory knows takes from its first DHCP to its whole report,
than a node to its join.

One rack of BIOS machines: in each round a node boots, and is switched off again, then a machine
that nobody knows boots, reports and is forgotten, so that both have the same machine room, one
after the other. Prints one JSON object last.

    python -m tests.bench.discover --rounds 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from vrack.rack import Rack
from vrack.spec import VmSpec

LIMIT_S = 300.0
AIM_S = 2.0


def power(rack: Rack, index: int, what: str) -> None:
    """A person's own way to a machine."""
    secrets = rack.secrets
    assert secrets is not None
    done = rack.run(
        [
            "ipmitool",
            "-I",
            "lanplus",
            "-C",
            "3",
            "-H",
            rack.nodes[index].bmc_address,
            "-U",
            "admin",
            "-f",
            str(secrets.password_file),
            "chassis",
            "power",
            what,
        ]
    )
    if done.returncode:
        raise SystemExit(f"cannot switch machine {index} {what}: {done.stderr}")


def events(head: HeadRun, since: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = head.api("GET", f"/v1/events?since={since}&limit=5000")["events"]
    return found


def newest(head: HeadRun) -> int:
    found = events(head, 0)
    return int(found[-1]["id"]) if found else 0


def known(head: HeadRun) -> float:
    """Seconds from a node's first DHCP to its join."""
    began = newest(head)
    head.api("POST", "/v1/nodes/state", {"range": "n0", "state": "up"})
    head.wait_converged(LIMIT_S)
    told = [e for e in events(head, began) if e["node"] == "n0"]
    first = next(e["at"] for e in told if e["kind"] == "boot.discover-seen")
    joined = next(e["at"] for e in told if e["kind"] == "node.joined")
    head.api("POST", "/v1/nodes/state", {"range": "n0", "state": "off"})
    head.wait_converged(LIMIT_S)
    return float(joined - first)


def unknown(rack: Rack, head: HeadRun) -> float:
    """Seconds from the first DHCP of a machine that nobody knows to its report."""
    began, mac = newest(head), rack.nodes[1].mac
    power(rack, 1, "on")

    def reported() -> dict[str, Any] | None:
        return next(
            (
                e
                for e in events(head, began)
                if e["kind"] == "machine.discovered" and e["data"].get("mac") == mac
            ),
            None,
        )

    head.wait("the machine has reported", reported, LIMIT_S)
    found = reported()
    assert found is not None
    first = next(
        e["at"] for e in events(head, began) if mac in json.dumps(e) and e["id"] < found["id"]
    )
    power(rack, 1, "off")
    head.api("DELETE", f"/v1/machines/{mac}")
    return float(found["at"] - first)


def main() -> None:
    """All rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="layercake-discover-") as directory:
        rack = Rack(Path(directory) / "rack", [VmSpec(), VmSpec()])
        head = HeadRun(rack, Path(directory) / "head")
        try:
            rack.up()
            head.init({"boot": {"attempts": 2}})
            head.start()
            data = yaml.safe_load(rack.inventory())
            del data["nodes"]["n1"]
            data["nodes"]["n0"]["state"] = "off"
            data["networks"] = {
                "rack": {
                    "subnet": "10.99.0.0/24",
                    "guests": ["10.99.0.200-10.99.0.209"],
                    "discovery": 2,
                }
            }
            head.apply(yaml.safe_dump(data))
            head.wait_converged(LIMIT_S)
            both = [(known(head), unknown(rack, head)) for _ in range(rounds)]
        finally:
            head.close()
            rack.down()
    over = [strange - bare for bare, strange in both]
    print(
        json.dumps(
            {
                "bare_s": [round(bare, 2) for bare, _ in both],
                "discovered_s": [round(strange, 2) for _, strange in both],
                "over_bare_s": round(statistics.median(over), 2),
                "aim_s": AIM_S,
            }
        )
    )


if __name__ == "__main__":
    main()
