"""Prometheus' own checker, out of Debian's package: the package itself would start a server on this
machine."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from headrun import CACHE

from minos.build import kernel
from minos.build.debian import debs


@functools.cache
def promtool() -> Path:
    """The program, fetched once. Raises LayercakeError."""
    machine = platform.machine()
    package = kernel.download(
        "prometheus", debs.place(machine, CACHE), debs.options(machine, CACHE)
    )
    return kernel.opened(package) / "usr/bin/promtool"
