"""The whole suite, and what failed in it once more by itself: `python -m tests.again PYTEST-ARGS`.

Real firmware, BMCs and kernels share two processors with all other tests. A test that fails there
and passes alone is broken as well: it waits for a time instead of for what must be seen, or the
product does. It is named at the end, UNSTEADY, and does not hold back everything else. More than
MOST failures are no accident, and nothing is tried again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST = 3
FAILED = 1
"""Exit status of pytest: it ran, and some tests failed."""
LAST = Path(".pytest_cache/v/cache/lastfailed")
TESTS = Path("tests")
REWRITTEN = "*-pytest-*.pyc"
"""What pytest keeps of a file of tests whose asserts it has rewritten."""
Run = Callable[[Sequence[str]], int]


def pytest(arguments: Sequence[str], output: int | None = None) -> int:
    """Runs pytest in a process of its own; its exit status. What is compiled is kept, whatever the
    environment says: hundreds of heads, modules and commands are started, each out of the same
    files."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(words, env=environment, stdout=output, check=False).returncode


def unheard(arguments: Sequence[str]) -> int:
    """The same, and what it prints goes nowhere."""
    return pytest(arguments, subprocess.DEVNULL)


def rewrite_once(tests: Path = TESTS, run: Run = unheard) -> None:
    """In a fresh clone pytest rewrites the asserts of all tests, which takes as long as all else
    that it does before the first one, and each worker would do it for itself. Here two processes
    collect half of the tests each. What they cannot collect, the run itself shows."""
    if next(tests.rglob(REWRITTEN), None) is not None:
        return
    files = sorted(str(file) for file in tests.rglob("test_*.py"))
    collect = ["--collect-only", "-qq", "-p", "no:cacheprovider"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ([*collect, *half] for half in (files[::2], files[1::2]) if half)))


def again(arguments: Sequence[str], run: Run = pytest, last: Path = LAST) -> int:
    """Runs the suite, and then what failed; the exit status."""
    status = run(["--cache-clear", *arguments])
    failed = sorted(json.loads(last.read_text())) if last.is_file() else []
    by_name = all("::" in name for name in failed)  # else a worker, or a file that does not load
    if status != FAILED or not by_name or not 0 < len(failed) <= MOST:
        return status
    print(f"\n{len(failed)} failed beside all others; once more, by themselves", flush=True)
    if status := run(failed):
        return status
    for name in failed:
        print(f"UNSTEADY {name}: it failed beside others, and passed alone; mend it")
    return 0


if __name__ == "__main__":
    rewrite_once()
    sys.exit(again(sys.argv[1:]))
