"""What the guard does when a third of ten thousand simulated nodes fall silent at once, and when
they come back.

Head, agents and this driver are a process each, in a network namespace of their own (roll_sim.py
says what is simulated). `called_s` is from the silence until the outage is called: `dead_s`, 15 s,
from the nodes' last HELLOs on, as silence is what it takes; more than 20,000 nodes say HELLO half
as often, and it is 30 s. `power_actions` counts steps that do something to a machine, over
SILENT_S: it has to be 0. `quiet_s` is from the nodes' return until all are in sync and no outage is
left. `ratio` is called_s over dead_s. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import time
from typing import Any

from tests.bench._bulk import MANY, SILENT_SHARE
from tests.bench.roll import enter
from tests.bench.roll_sim import Api, converged, in_namespace, site

SILENT_S = 90.0
"""Longer than a head without a guard waits until it resets a silent node: 15 s until it is lost,
and 60 s more."""
HELLO_S, MANY_HELLO_S, DEAD = 5.0, 10.0, 3.0
HARM = ("power-on", "power-off", "power-reset", "boot-arm")


def until(what: str, true: Any, limit: float) -> float:
    """Seconds until something is true."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > limit:
            raise SystemExit(f"not {what} after {limit:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - start


def measure(api: Api, nodes: int, agents: subprocess.Popen[bytes], dead_s: float) -> dict[str, Any]:
    """The silence and the return."""
    converged(api, nodes, 180 + nodes / 200)
    time.sleep(6.0)
    newest = max((e["id"] for e in api.ask("GET", "/v1/events?limit=1")["events"]), default=0)
    agents.send_signal(signal.SIGUSR1)
    start = time.monotonic()
    called = until("called", lambda: api.ask("GET", "/v1/guard")["outages"], 60)
    time.sleep(max(0.0, SILENT_S - (time.monotonic() - start)))
    silent = api.ask("GET", "/v1/guard")["silent"]
    if silent != round(nodes * SILENT_SHARE):
        raise SystemExit(f"{silent} nodes are silent, {nodes * SILENT_SHARE:.0f} were meant to be")
    agents.send_signal(signal.SIGUSR2)
    quiet = until(
        "quiet",
        lambda: (
            api.ask("GET", "/v1/status")["nodes"]["converged"] == nodes
            and not api.ask("GET", "/v1/guard")["outages"]
        ),
        120,
    )
    harm = 0
    for mutation in HARM:
        told = api.ask("GET", f"/v1/events?since={newest}&kind=mutation.started&limit=5000")[
            "events"
        ]
        harm += sum(e["data"]["mutation"] == mutation for e in told)
    return {
        "nodes": nodes,
        "silent": silent,
        "called_s": round(called, 2),
        "ratio": round(called / dead_s, 2),
        "power_actions": harm,
        "quiet_s": round(quiet, 2),
    }


def main() -> None:
    """Makes the namespace and runs the benchmark in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        hello_s = MANY_HELLO_S if options.nodes > MANY else HELLO_S
        with site(options.nodes, hello_s) as (socket, _, agents):
            print(json.dumps(measure(Api(socket), options.nodes, agents, DEAD * hello_s)))
        return
    in_namespace("tests.bench.guard", "--nodes", str(options.nodes))


if __name__ == "__main__":
    main()
