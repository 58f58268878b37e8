"""A head's world, as in tests/head."""

from tests.head.conftest import client, world

__all__ = ["client", "world"]
