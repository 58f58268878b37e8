"""Captures: what firmware, machine and head said of one node, as an archive for who has to find
out why it does not boot."""

from __future__ import annotations

from layercake.features.captures.operations import Captures
from layercake.features.captures.routes import CaptureRoutes
from layercake.features.consoles.operations import Consoles
from layercake.features.nodes.explain import Explainer
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    captures = Captures(
        kernel.store,
        kernel.database.history,
        kernel.modules.ask,
        kernel.part(Consoles),
        kernel.part(Explainer),
    )
    return Running((captures,), routes=(CaptureRoutes(captures),))


FEATURE = Feature("captures", _start, needs=("consoles", "nodes"), routes=(CaptureRoutes,))
