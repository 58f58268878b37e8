"""For every test: what Hypothesis tries is the same each time, and how long an example takes is no failure.

A busy machine may stop for longer than Hypothesis's 200 ms in any example. A child that a test forks has one thread, as an agent
has: gRPC would start its own in each, where a head has run in the same process, and the kernel gives no user namespace then.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
settings.register_profile("layercake", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("layercake")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files are shared out to workers (make test), the longest come first: those with virtual machines."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("vm") is None)
