"""Runs benchmarks, and ends with one table of all figures: `python -m tests.bench [NAME ...]`.

A line of the table is a figure: ours, beside it those of the peers that were measured in turn with
it, and what was recorded last with how much it has moved. A benchmark that fails is named, and the
others go on; the result is 1 then. Without a NAME all are run, and those that take longest do less
(`BRIEF`). Ctrl-C ends it with the table of what there is until then. `--record` writes the figures
into recorded.json, with the machine, but for those of less work.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.engine import calibration

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
PEERS = ("kea", "dnsmasq", "nginx", "peer", "bare", "clush")
"""A figure PEER_NAME is the peer's of the figure NAME."""
BRIEF: Mapping[str, Sequence[str]] = {
    "abuse": ("--nodes", "4000", "--seconds", "3"),
    "chaos": ("--rounds", "6"),
    "exec": ("--simulated", "2000", "--real", "60"),
    "failover": ("--rounds", "6", "--handovers", "3"),
    "kills": ("--kills", "30"),
}
"""With what these are run among all others: their arguments."""
END_S = 60.0
"""How long a benchmark may take to tidy up after Ctrl-C."""
Figures = Mapping[str, float]


def names() -> list[str]:
    """All benchmarks."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def run(name: str, words: Sequence[str] = ()) -> dict[str, Any] | None:
    """The last line of a benchmark, which is shown as it goes; None if it fails. `words` are its
    arguments."""
    argv = [sys.executable, "-m", f"tests.bench.{name}", *words]
    last = ""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line if line.strip() else last
        except KeyboardInterrupt:  # it is in a group of its own, and hears of it once
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            raise
    try:
        found = json.loads(last)
    except ValueError:
        return None
    return found if process.returncode == 0 and isinstance(found, dict) else None


def machine() -> dict[str, Any]:
    """What the figures are of."""
    return {
        "calibration_s": round(calibration(), 3),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "day": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def figures(found: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a benchmark's last line."""
    return {
        key: float(value)
        for key, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def peers_of(name: str, found: Figures) -> dict[str, float]:
    """The peers' figures of one of ours."""
    return {peer: found[f"{peer}_{name}"] for peer in PEERS if f"{peer}_{name}" in found}


def lines(name: str, found: Figures, before: Figures) -> Iterable[list[str]]:
    """The table's lines of a benchmark: its name, the figure's, ours, the peers', the last and how
    much it has moved."""
    theirs = {f"{peer}_{key}" for key in found for peer in peers_of(key, found)}
    for key in found.keys() - theirs:
        if key == "calibration_s":
            continue
        beside = ", ".join(f"{peer} {value:g}" for peer, value in peers_of(key, found).items())
        last = before.get(key)
        change = f"{(found[key] / last - 1) * 100:+.0f} %" if last else ""
        yield [name, key, f"{found[key]:g}", beside, "" if last is None else f"{last:g}", change]


def table(found: Mapping[str, Figures], before: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The whole table, and of which machines both columns are."""
    head = ["benchmark", "figure", "now", "peers", "recorded", "moved"]
    recorded = before.get("figures", {})
    rows = [
        row for name in found for row in sorted(lines(name, found[name], recorded.get(name, {})))
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    text = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    text.append(f"now: {_words(here)}")
    text.append(f"recorded: {_words(before.get('machine', {})) or 'nothing'}")
    return "\n".join(line.rstrip() for line in text)


def _words(of: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in of.items())


def main() -> int:
    """Runs them, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names(), []], metavar="NAME")
    parser.add_argument("--record", action="store_true", help="write recorded.json")
    options = parser.parse_args()
    brief: Mapping[str, Sequence[str]] = {} if options.names else BRIEF
    found: dict[str, dict[str, float]] = {}
    failed = []
    for name in options.names or names():
        words = brief.get(name, ())
        print(" ".join(["==", name, *words]), flush=True)
        begun = time.monotonic()
        try:
            result = run(name, words)
        except KeyboardInterrupt:
            failed.append(name)
            break
        print(f"== {name} took {time.monotonic() - begun:.0f} s", flush=True)
        if result is None:
            failed.append(name)
        else:
            found[name] = figures(result)
    here = machine()
    before: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    print(table(found, before, here))
    if options.record:
        whole = {name: one for name, one in found.items() if name not in brief}
        kept = {"machine": here, "figures": before.get("figures", {}) | whole}
        RECORDED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
