"""What a test leaves behind when it fails is its own affair: a socket that it did not close fails
no test after it.

A failed test's objects live as long as its traceback, and Python warns of them when they go, which
is during another test."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around each test, with its fixtures: lets go of what a failed one has left."""
    before = item.session.testsfailed
    done = yield
    if item.session.testsfailed > before:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return done
