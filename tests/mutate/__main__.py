"""`python -m tests.mutate [PART...] --sample N --seed S`: how many of a part's mutants its tests
kill, and the mutants that live. What is known is kept in build/mutate: an interrupted run goes on,
and a larger sample has all of a smaller one. The exit code is 0 if each part reaches its aim.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.mutate.measure import Measurement, Sample, try_one
from tests.mutate.parts import PARTS
from tests.mutate.record import equivalents

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """0 if all parts reach their aim."""
    parser = argparse.ArgumentParser(prog="tests.mutate", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all without")
    parser.add_argument("--sample", type=int, default=300, help="mutants of each part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="mutants of files whose path has this in it")
    parser.add_argument("--tests", nargs="*", help="only these of its tests: at most as many die")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if len(args.parts) == 1:
        name = args.parts[0]
        part = replace(PARTS[name], tests=tuple(args.tests)) if args.tests else PARTS[name]
        if args.one:
            return try_one(ROOT, part, args.one)
        sample = Sample(args.sample, args.seed, args.only)
        return Measurement(ROOT, name, part, sample, equivalents()).run()
    command = [sys.executable, "-m", "tests.mutate", "--sample", str(args.sample)]
    command += ["--seed", str(args.seed), "--only", args.only]
    ends = [
        subprocess.run([*command, name], check=False).returncode for name in args.parts or PARTS
    ]
    return 1 if any(ends) else 0


if __name__ == "__main__":
    sys.exit(main())
