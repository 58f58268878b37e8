"""Says at the end which files of tests took longest, all their tests and fixtures together: that is
where seconds of the suite can be saved."""

from __future__ import annotations

from collections import defaultdict

import pytest
from _pytest.terminal import TerminalReporter

SHOWN = 25


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """A line for each of the SHOWN longest, of a run of many files."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > SHOWN:
        terminalreporter.section("longest files")
        for file in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"{seconds[file]:8.1f}s {file}")
