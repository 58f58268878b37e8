"""`python -m tests.fuzz [NAME...] --inputs N --seed S`: feeds targets, each in a process of its
own, as many at once as there are processors, and prints a line of JSON for each. `python -m
tests.fuzz NAME --replay FILE` feeds one input again. What was found is written to build/fuzz/."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from tests.fuzz import rest
from tests.fuzz.harness import feed, replay
from tests.fuzz.targets import TARGETS

FOUND, REST = Path("build/fuzz"), "rest"


def _one(name: str, inputs: int, seed: int) -> bool:
    if name == REST:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as directory:
            return rest.main(inputs, seed, Path(directory))
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as directory,
        TARGETS[name](Path(directory)) as target,
    ):
        report = feed(name, target, inputs, seed)
    print(json.dumps(report.line()), flush=True)
    for data, why in report.failures:
        FOUND.mkdir(parents=True, exist_ok=True)
        file = FOUND / f"{name}-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
        file.write_bytes(data)
        print(f"{why}\n{name} fails with {data[:2000]!r}\n--replay {file}", file=sys.stderr)
    return report.well


def _again(name: str, file: Path) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as directory,
        TARGETS[name](Path(directory)) as target,
    ):
        why = replay(target, file.read_bytes())
    print(why or "nothing happens that should not")
    return not why


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*TARGETS, REST, []],
        metavar="NAME",
        help=f"{', '.join((*TARGETS, REST))}; all without",
    )
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if args.replay:
        return 0 if _again(args.names[0], args.replay) else 1
    if len(args.names) == 1:
        return 0 if _one(args.names[0], args.inputs, args.seed) else 1
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--inputs",
        str(args.inputs),
        "--seed",
        str(args.seed),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as several:
        ends = several.map(
            lambda name: subprocess.run([*command, name], check=False).returncode,
            args.names or (*TARGETS, REST),
        )
        return 1 if any(list(ends)) else 0


if __name__ == "__main__":
    sys.exit(main())
