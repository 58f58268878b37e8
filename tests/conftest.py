"""For every test: what Hypothesis tries is the same each time, and how long an example takes is no failure.

A busy machine may stop for longer than Hypothesis's 200 ms in any example.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("layercake", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("layercake")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files are shared out to workers (make test), the longest come first: those with virtual machines."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("vm") is None)
