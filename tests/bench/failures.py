"""The failures of a simulated fleet at any size (tests/sim/failures.py): a bad network, flapping
nodes, a third dark, bad BMCs.

    python -m tests.bench.failures --nodes 10000 --minutes 10
    python -m tests.bench.failures --only third-dark --nodes 30000

Needs to make network namespaces. Prints one JSON object last: what was seen of each, and whether it
is as it has to be.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from tests.sim import failures

Case = Callable[[Path, int, float], dict[str, Any]]
QUIET_S = 60.0
RATIO = 1.5


def main() -> None:
    """Runs them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=1.0)
    cases: dict[str, Case] = {
        "bad-network": lambda place, nodes, seconds: failures.bad_network(place, nodes, seconds),
        "third-dark": lambda place, nodes, seconds: failures.third_dark(
            place, nodes, min(120.0, seconds)
        ),
        "flapping": lambda place, nodes, seconds: failures.flapping(place, nodes, seconds / 2),
        "bad-bmcs": lambda place, nodes, seconds: failures.bad_bmcs(
            place, nodes, 120.0 + nodes / 20
        ),
    }
    parser.add_argument("--only", choices=cases)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, case in cases.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="layercake-sim-") as scratch:
                found[name] = case(Path(scratch) / "d", options.nodes, options.minutes * 60)
            print(f"{name}: {found[name]}", flush=True)
    print(json.dumps(found | {"well": all(well(name, said) for name, said in found.items())}))


def well(name: str, found: dict[str, Any]) -> bool:
    """Whether a failure did no harm."""
    if name == "flapping":
        return bool(found["ratio"] <= RATIO and not found["harm_to_others"])
    if name == "bad-bmcs":
        return bool(found["converged"] >= found["nodes"] - found["bad"])
    return bool(
        not found["power_actions"]
        and not found.get("false_deaths")
        and found.get("quiet_s", 0.0) <= QUIET_S
    )


if __name__ == "__main__":
    main()
