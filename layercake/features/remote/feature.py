"""What is done on many nodes at once."""

from __future__ import annotations

from layercake.features.remote.node_routes import ContentRequests
from layercake.features.remote.operations import Remote
from layercake.features.remote.routes import RemoteRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    remote = Remote(kernel.store, kernel.requests, kernel.section("fan_out"))
    return Running(
        (remote,), routes=(RemoteRoutes(remote),), node_routes=ContentRequests(remote).routes()
    )


FEATURE = Feature("remote", _start, routes=(RemoteRoutes,))
