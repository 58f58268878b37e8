"""A head's world, as in tests/head."""

from tests.head.conftest import world

__all__ = ["world"]
