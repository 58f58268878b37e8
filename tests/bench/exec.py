"""A command on many nodes: `layercake node exec`, beside clush over sshd. `python -m
tests.bench.exec`.

`ratio`: wall time of `layercake node exec @all -- true` on REAL agents, each a process of its own
on this machine, to that of clush with ssh to as many addresses of one sshd; the median of ROUNDS,
taken in turns. Then SICK of the agents are stopped (they hang), and as many are killed: `sick_rel`
is how much later the last of the others has answered.

`sim_s` is the wall time on SIMULATED nodes (layercake.sim: head, fleet and command are a process
each), `sim_rel` that divided by `calibration_s` (engine.py), and `sim_sick_rel` as above. Prints
one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench._history import median
from tests.bench._realagents import real
from tests.bench.engine import calibration
from tests.bench.roll import enter
from tests.bench.roll_sim import Api, converged, cpu_s, in_namespace, site

REAL, SIMULATED = 200, 10_000
SICK = 0.05
ROUNDS = 5
LIMIT_S = 10.0
"""The time limit of a node where some are sick."""


def command(socket: Path, *words: str) -> list[str]:
    """The command line of `layercake node exec` on all nodes."""
    program = [sys.executable, "-m", "layercake.cli.main", "--socket", str(socket)]
    return [*program, "node", "exec", "@all", *words, "--", "true"]


def healthy(socket: Path, nodes: int) -> float:
    """Seconds until all of the nodes have answered."""
    begun = time.perf_counter()
    done = subprocess.run(command(socket), capture_output=True, text=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode or f"{nodes} nodes: {nodes} done" not in done.stderr:
        raise SystemExit(f"not all nodes have run it: {done.stderr[-500:]}")
    return took


def with_sick(socket: Path, well: int) -> float:
    """Seconds until those that are well have answered, while some others never do."""
    begun = time.perf_counter()
    words = command(socket, "--json", "--timeout", f"{LIMIT_S:g}")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        took = 0.0
        answered = 0
        for line in running.stdout or ():
            if json.loads(line)["exit"] == 0:
                answered += 1
                took = time.perf_counter() - begun
    if answered < well:
        raise SystemExit(f"only {answered} of {well} nodes that are well have answered")
    return took


def simulated(nodes: int) -> dict[str, Any]:
    """The simulated ones, inside a namespace."""
    with site(nodes, 5.0, (SICK, SICK)) as (socket, head, fleet):
        converged(Api(socket), nodes, 120 + nodes / 200)
        before = cpu_s(head.pid), cpu_s(fleet.pid)
        times = [healthy(socket, nodes) for _ in range(3)]
        used = [round(cpu_s(p.pid) - b, 1) for p, b in zip((head, fleet), before, strict=True)]
        print(f"simulated: {times}, CPU of head and fleet {used}", file=sys.stderr)
        fleet.send_signal(signal.SIGUSR1)
        sick = with_sick(socket, nodes - 2 * round(SICK * nodes))
    return {
        "sim_s": round(median(times), 2),
        "sim_sick_s": round(sick, 2),
        "sim_sick_rel": round(sick / median(times), 2),
    }


def beside_clush(namespace: str, nodes: int) -> dict[str, Any]:
    """The real ones, inside a namespace."""
    with real(namespace, nodes) as (agents, sshd):
        hosts = ",".join(sshd.hosts)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(healthy(agents.socket, nodes))
            begun = time.perf_counter()
            done = sshd.run("-w", hosts)
            theirs.append(time.perf_counter() - begun)
            if done.returncode:
                raise SystemExit(f"clush has failed: {done.stderr[-500:]}")
        print(f"exec {ours}, clush {theirs}", file=sys.stderr)
        sick = round(SICK * nodes)
        for name in agents.names[:sick]:
            agents.hang(name)
        for name in agents.names[sick : 2 * sick]:
            agents.kill(name)
        late = with_sick(agents.socket, nodes - 2 * sick)
    return {
        "ratio": round(median(ours) / median(theirs), 3),
        "exec_s": round(median(ours), 2),
        "clush_s": round(median(theirs), 2),
        "sick_rel": round(late / median(ours), 2),
    }


def main() -> None:
    """The simulated nodes, then the real ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", type=int, default=SIMULATED)
    parser.add_argument("--real", type=int, default=REAL)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        if options.simulated:
            found = simulated(options.simulated)
        else:
            found = beside_clush(options.inside, options.real)
        Path(options.found).write_text(json.dumps(found))
        return
    unit = calibration()
    found = {}
    for many, few in ((0, options.real), (options.simulated, 0)):
        if not many and not few:
            continue
        with tempfile.TemporaryDirectory(prefix="layercake-exec-") as scratch:
            file = Path(scratch) / "found.json"
            sizes = ("--simulated", str(many), "--real", str(few))
            in_namespace("tests.bench.exec", *sizes, "--found", str(file))
            found |= json.loads(file.read_text())
    if options.simulated:
        found["sim_rel"] = round(found["sim_s"] / unit, 1)
    found["calibration_s"] = round(unit, 3)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
