"""Says of a test why it failed when it fails, not only at the end: a run that is cut off has said
it."""

from __future__ import annotations

import os
import sys

import pytest

MOST = 12_000
"""Characters of a failure that are printed at once; the end has all of them."""


def shown(text: str) -> str:
    """The beginning and the end of what is longer than MOST."""
    if len(text) <= MOST:
        return text
    return f"{text[: MOST // 4]}\n[...]\n{text[-3 * MOST // 4 :]}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A line and the failure itself on standard error, from the process that gathers the
    reports."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        words = f"\nFAILED {report.nodeid} ({report.when})\n{shown(report.longreprtext)}"
        print(words, file=sys.stderr, flush=True)
