"""Says at the end which files of tests took longest, all their tests and fixtures together, and how
many seconds of a processor: that is where the suite can be made shorter. What a program has used
counts when it has ended, with the test at which it did."""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

SHOWN = 25
CPU_S = "cpu_s"
_USED = pytest.StashKey[float]()


def _used_s() -> float:
    """What this process and those that it has waited for have used."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes in the last report of a test what was used since that of the one before."""
    report = yield
    if call.when == "teardown":
        used = _used_s()
        before = item.config.stash.get(_USED, 0.0)
        item.config.stash[_USED] = used
        report.user_properties.append((CPU_S, used - before))
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """A line for each of the SHOWN longest, of a run of many files."""
    seconds: defaultdict[str, float] = defaultdict(float)
    cpu: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration
                used = dict(report.user_properties).get(CPU_S)
                cpu[file] += used if isinstance(used, float) else 0.0
    if len(seconds) > SHOWN:
        terminalreporter.section("longest files")
        for file in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"{seconds[file]:8.1f} s {cpu[file]:8.1f} CPU-s  {file}")
