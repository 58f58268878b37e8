"""Prometheus' own checker, and its Alertmanager, out of Debian's packages: the packages themselves
would start servers on this machine."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from headrun import CACHE

from minos.build import kernel
from minos.build.debian import debs


@functools.cache
def promtool() -> Path:
    """The checker, fetched once. Raises LayercakeError."""
    return _fetched("prometheus") / "usr/bin/promtool"


@functools.cache
def alertmanager() -> Path:
    """The server that alerts are sent to, fetched once. Raises LayercakeError."""
    return _fetched("prometheus-alertmanager") / "usr/bin/prometheus-alertmanager"


def _fetched(package: str) -> Path:
    machine = platform.machine()
    where = debs.place(machine, CACHE)
    return kernel.opened(kernel.download(package, where, debs.options(machine, CACHE)))
