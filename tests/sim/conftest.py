"""What the tests of simulations share with those of the command line."""

from __future__ import annotations

from tests.cli.conftest import run, socket

__all__ = ["run", "socket"]
