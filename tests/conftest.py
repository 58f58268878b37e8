"""For every test: what Hypothesis tries is the same each time, and how long an example takes is no
failure.

A busy machine may stop for longer than Hypothesis's 200 ms in any example. A child that a test
forks has one thread, as an agent has: gRPC would start its own in each, where a head has run in the
same process, and the kernel gives no user namespace then.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.support.aftermath import pytest_runtest_protocol
from tests.support.at_once import pytest_runtest_logreport
from tests.support.longest import pytest_runtest_makereport, pytest_terminal_summary
from tests.support.sharing import pytest_xdist_make_scheduler

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
settings.register_profile(
    "layercake", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("layercake")


__all__ = [
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
]
