"""The same world as the head's tests have."""

from __future__ import annotations

from tests.head.conftest import world

__all__ = ["world"]
