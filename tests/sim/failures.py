"""The failures that a simulated fleet has to live through, at any size: each plays a simulation,
and returns what was seen.

tests/sim/test_failures.py holds them at the size that CI can bear; tests/bench/failures.py runs
them at full size.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from layercake.fleet import events
from layercake.inventory import ranges
from tests.sim.played import Simulation, all_up, playing

BAD_NETWORK = {
    "loss": 0.01,
    "delay_s": 0.015,
    "jitter_s": 0.005,
    "reorder": 0.01,
    "duplicate": 0.01,
}
SILENT = events.SYNC_LOST.name


def bad_network(place: Path, nodes: int, seconds: float, **options: Any) -> dict[str, Any]:
    """1 % loss, 15 +- 5 ms, reordering, duplicates: how many nodes that live were held for dead."""
    with playing(place, nodes=nodes, faults=BAD_NETWORK, **options) as sim:
        up_s = all_up(sim, nodes, _up_limit(nodes))
        newest, commands = sim.newest(), sim.commands()
        time.sleep(seconds)
        status = sim.get("/v1/status")
        return {
            "nodes": nodes,
            "seconds": seconds,
            "up_s": round(up_s, 1),
            "false_deaths": sim.count(SILENT, newest),
            "power_actions": len(sim.harm(newest)) + sim.commands() - commands,
            "converged": status["nodes"]["converged"],
            "silent": status["guard"]["silent"],
        }


def third_dark(place: Path, nodes: int, dark_s: float, **options: Any) -> dict[str, Any]:
    """A third of the nodes and their BMCs dark, and back: what the head did to machines, and how
    long it was not quiet after."""
    at = options.pop("at", 60.0 + nodes / 35)
    with playing(
        place, nodes=nodes, dark=[{"nodes": "33%", "at": at, "lasts": dark_s}], **options
    ) as sim:
        up_s = all_up(sim, nodes, at)
        newest, commands = sim.newest(), sim.commands()
        sim.until("dark", lambda: _said(sim, "dark:"), at + 30)
        called_s = sim.until("called an outage", lambda: sim.get("/v1/guard")["outages"], 120)
        silent = sim.until("back", lambda: _said(sim, "back:"), dark_s + 30)
        quiet_s = sim.until(
            "quiet",
            lambda: sim.nodes()["converged"] == nodes and not sim.get("/v1/guard")["outages"],
            180,
        )
        return {
            "nodes": nodes,
            "dark": int(_said(sim, "dark:").split()[1]),
            "up_s": round(up_s, 1),
            "called_s": round(called_s, 1),
            "dark_s": round(called_s + silent, 1),
            "quiet_s": round(quiet_s, 1),
            "power_actions": len(sim.harm(newest)) + sim.commands() - commands,
        }


def flapping(place: Path, nodes: int, seconds: float, **options: Any) -> dict[str, Any]:
    """5 % of the nodes flap: how long the head takes to answer for one of the others, against a
    fleet in which none does, and what was done to machines that do not."""
    found: dict[str, Any] = {"nodes": nodes}
    for name, faults in (
        ("calm", {}),
        ("flapping", {"flap": 0.05, "flap_every_s": 30.0, "flap_for_s": 20.0}),
    ):
        with playing(place, nodes=nodes, faults=faults, **options) as sim:
            sim.until(
                "most are up", lambda: sim.nodes()["converged"] >= 0.9 * nodes, _up_limit(nodes)
            )
            flaps = set(expanded(_said(sim, "flap:").removeprefix("flap: "))) if faults else set()
            sim.until("all others are up", partial(_others_up, sim, flaps), _up_limit(nodes))
            newest, times = sim.newest(), list[float]()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                begin = time.perf_counter()
                sim.get("/v1/nodes/r0000n00")
                times.append(time.perf_counter() - begin)
                time.sleep(0.02)
            times.sort()
            found |= {
                f"{name}_p{of}_ms": round(1000 * times[int(len(times) * of / 100)], 1)
                for of in (50, 99)
            }
            found["harm_to_others"] = len(
                [harm for harm in sim.harm(newest) if harm.split(":")[0] not in flaps]
            )
            found["flap"] = len(flaps)
    found["ratio"] = round(found["flapping_p99_ms"] / found["calm_p99_ms"], 2)
    return found


def bad_bmcs(place: Path, nodes: int, limit: float, **options: Any) -> dict[str, Any]:
    """A tenth of the BMCs is dead, slow, or lies: whether the other nodes come up, and how long
    they take."""
    with playing(place, nodes=nodes, faults={"bad_bmc": 0.1}, **options) as sim:
        sim.until("says who is bad", lambda: _said(sim, "bad-bmc:"), 60)
        bad = len(expanded(_said(sim, "bad-bmc:").removeprefix("bad-bmc: ")))
        up_s = all_up(sim, nodes - bad, limit)
        return {
            "nodes": nodes,
            "bad": bad,
            "up_s": round(up_s, 1),
            "converged": sim.nodes()["converged"],
        }


def expanded(words: str) -> list[str]:
    """The nodes that a folded range names."""
    return ranges.names_of(words)


def _others_up(sim: Simulation, flaps: set[str]) -> bool:
    """Whether all nodes that do not flap run what is wanted."""
    told = sim.get("/v1/nodes?fields=name,status")["nodes"]
    return all(node["status"] == "converged" for node in told if node["name"] not in flaps)


def _said(sim: Simulation, begin: str) -> str:
    return next((line for line in sim.lines if line.startswith(begin)), "")


def _up_limit(nodes: int) -> float:
    return 90.0 + nodes / 20
