"""One part is measured: its mutants, a run without one, a child for each, and the table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutate.apply import Finder, swap
from tests.mutate.mutants import Mutant, mutants, read
from tests.mutate.parts import Part
from tests.mutate.record import Equivalent, Record, digest
from tests.mutate.runner import (
    Baseline,
    Calls,
    Plugin,
    Verdict,
    allow,
    in_child,
    run_all,
    run_until_failure,
)

PYTEST = ("-q", "--no-header", "--no-summary", "-s", "-x", "-p", "no:cacheprovider", "-m", "not vm")
BASELINE_S = 3600.0
IMPORTS_S = 60.0
"""What it may take to import and collect the tests of a part, before the first of them runs."""


@dataclass(frozen=True)
class Sample:
    """Which mutants are tested: so many of each part, by a seed; of files whose path has a text
    in it."""

    size: int = 300
    seed: int = 1
    only: str = ""

    def of(self, found: list[Mutant]) -> list[Mutant]:
        """A larger sample has all of a smaller one."""
        chosen = sorted(found, key=lambda mutant: mutant.rank(self.seed))
        return [mutant for mutant in chosen if self.only in mutant.path][: self.size]


class Measurement:
    """A part and a sample of its mutants."""

    def __init__(
        self, root: Path, name: str, part: Part, sample: Sample, known: Sequence[Equivalent]
    ) -> None:
        self._root = root
        self._name = name
        self._part = part
        self._texts = read(root, part.files)
        self._all = [m for path, text in self._texts.items() for m in mutants(path, text)]
        self._equivalent = [m for m in self._all if any(entry.is_for(m) for entry in known)]
        self._sample = sample.of([m for m in self._all if m not in self._equivalent])
        tests = digest([file.read_text() for file in _test_files(root, part)])
        self._directory = root / "build/mutate"
        self._baseline_file = self._directory / f"{name}-{digest([tests, *self._texts.values()])}"
        self._record = Record(self._directory / f"{name}.jsonl", self._texts, tests)
        self._calls = Calls(root, list(self._texts))
        self._tracing = ExitStack()

    def run(self) -> int:
        """Tests the mutants that nothing is known of, prints the table; 0 if the aim is reached."""
        if any(self._record.get(mutant) is None for mutant in self._sample):
            if not self._baseline_file.exists():
                self._tracing.enter_context(self._calls.noted())
            code = _pytest(self._root, self._part, Plugin(self._loop))
            if code:
                return code
        return self._report()

    def _loop(self, items: list[pytest.Item], session: pytest.Session) -> None:
        self._tracing.close()
        baseline = self._baseline(items, session)
        by_name = {item.nodeid: item for item in items}
        todo = [mutant for mutant in self._sample if self._record.get(mutant) is None]
        for number, mutant in enumerate(todo, 1):
            names = baseline.for_mutant(mutant)
            if baseline.is_early(mutant):
                verdict = self._in_a_pytest_of_its_own(mutant, baseline)
            else:
                chosen = [by_name[name] for name in names]
                verdict = self._in_a_child(mutant, chosen, baseline, session)
            self._record.add(mutant, verdict)
            state = "killed" if verdict.killed else "LIVES"
            print(
                f"{number}/{len(todo)} {state} {verdict.seconds:.1f} s {mutant.key[:140]}",
                flush=True,
            )

    def _in_a_child(
        self, mutant: Mutant, items: list[pytest.Item], baseline: Baseline, session: pytest.Session
    ) -> Verdict:
        def work() -> str:
            swap(self._root, mutant)
            return run_until_failure(session, items, baseline)

        return in_child(work, *_limits(baseline.cpu_s([item.nodeid for item in items])))

    def _in_a_pytest_of_its_own(self, mutant: Mutant, baseline: Baseline) -> Verdict:
        cpu_s, wall_s = _limits(baseline.cpu_s(list(baseline.tests)) + 20.0)
        command = [sys.executable, "-m", "tests.mutate", self._name, "--one"]
        command.append(f"{mutant.path}:{mutant.site}:{mutant.way}:{self._baseline_file}")
        command += ["--tests", *self._part.tests]
        begun = time.monotonic()

        def work() -> str:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = done.stdout.splitlines() or [""]
            return "" if not done.returncode else lines[-1] or f"exit code {done.returncode}"

        verdict = in_child(work, cpu_s, wall_s)
        return Verdict(verdict.killed, verdict.by, time.monotonic() - begun)

    def _baseline(self, items: list[pytest.Item], session: pytest.Session) -> Baseline:
        if not self._baseline_file.exists():
            imported = self._calls.taken()

            def work() -> str:
                tests = run_all(session, items, self._calls)
                Baseline(imported, tests).save(self._baseline_file)
                return ""

            self._directory.mkdir(parents=True, exist_ok=True)
            verdict = in_child(work, BASELINE_S, BASELINE_S)
            if verdict.killed:
                raise session.Interrupted(verdict.by)
            print(f"{len(items)} tests without a mutant: {verdict.seconds:.0f} s", flush=True)
        return Baseline.load(self._baseline_file)

    def _report(self) -> int:
        verdicts = {mutant: self._record.get(mutant) for mutant in self._sample}
        living = [m for m, verdict in verdicts.items() if verdict and not verdict.killed]
        for mutant in sorted(living, key=lambda m: (m.path, m.line)):
            print("\n" + mutant.diff(self._texts[mutant.path]))
        killed = len(verdicts) - len(living)
        score = 100 * killed / max(1, len(verdicts))
        print(
            f"\n{self._name}: of {len(verdicts)} mutants (of {len(self._all)}) {killed} are "
            f"killed: {score:.1f} %, at least {self._part.at_least} % are wanted; "
            f"{len(self._equivalent)} are equivalent and not counted"
        )
        return 0 if score >= self._part.at_least else 1


def try_one(root: Path, part: Part, place: str) -> int:
    """In a process of its own: tests one mutant that must be there before anything is imported.

    The last line of its output is what has killed it, if the exit code is not 0.
    """
    path, site, way, baseline_file = place.split(":", 3)
    found = mutants(path, (root / path).read_text())
    mutant = next(m for m in found if (m.site, m.way) == (int(site), int(way)))
    baseline = Baseline.load(Path(baseline_file))
    Finder(root, mutant).install()
    allow(IMPORTS_S)
    killer = ["does not import"]

    def loop(items: list[pytest.Item], session: pytest.Session) -> None:
        by_name = {item.nodeid: item for item in items}
        if set(by_name) != set(baseline.tests):
            killer[0] = "other tests"
            return
        chosen = [by_name[test] for test in baseline.for_mutant(mutant)]
        killer[0] = run_until_failure(session, chosen, baseline)

    code = _pytest(root, part, Plugin(loop))
    print(killer[0] or f"pytest ends with {code}")
    return 1 if killer[0] or code else 0


def _pytest(root: Path, part: Part, plugin: Plugin) -> int:
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        places = [f"--rootdir={root}", f"--basetemp={directory}/tests"]
        tests = [str(root / test) for test in part.tests]
        return int(pytest.main([*PYTEST, *places, *tests], [plugin]))


def _test_files(root: Path, part: Part) -> list[Path]:
    places = [root / test for test in part.tests]
    folders = {place if place.is_dir() else place.parent for place in places}
    files = [place for place in places if place.is_file()]
    files += [file for place in places if place.is_dir() for file in place.rglob("*.py")]
    files += [folder / "conftest.py" for folder in folders if (folder / "conftest.py").exists()]
    return sorted({*files, *(root / "tests/support").rglob("*.py")})


def _limits(cpu_s: float) -> tuple[float, float]:
    """(CPU, wall clock) that a mutant's tests may take: one that takes many times as long as
    without it never ends."""
    return 4 * cpu_s + 5, (10 * cpu_s + 120) * (1 + os.getloadavg()[0])
