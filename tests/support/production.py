"""The mutations that an operator expects, written out a second time: the engine's tests need no
module for them.

tests/engine/test_production.py fails when the modules declare anything else.
docs/reference/variables.md is made from their own.
"""

from __future__ import annotations

from layercake.kraken.mutation import Mutation, Where, declare
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Goal, Variable

VARIABLES = (
    Variable("power", ("UNKNOWN", "OFF", "ON", "HANG")),
    Variable("boot", ("UNKNOWN", "WAIT", "INIT")),
    Variable("run", ("UNKNOWN", "INIT", "SYNC", "ERROR")),
    Variable("image", ("UNKNOWN", "IDLE", "ACTIVE", "UPDATE", "ERROR", "FATAL")),
    Variable("busy", ("UNKNOWN", "FREE", "BUSY")),
)

_ON = {"power": "ON"}
_SYNC = {"run": "SYNC"}
_BUSY = {"busy": "BUSY"}
_HANG = ("power", "HANG")

MUTATIONS: tuple[Mutation, ...] = (
    declare("power-discover", changes={"power": ("UNKNOWN", "OFF")}, timeout=15),
    declare("power-on", changes={"power": ("OFF", "ON")}, timeout=50, on_timeout=_HANG),
    declare(
        "power-off",
        changes={"power": ("ON", "OFF")},
        excludes={"run": "SYNC", "busy": "BUSY"},
        timeout=30,
        on_timeout=_HANG,
    ),
    declare("power-reset", changes={"power": ("HANG", "OFF")}, timeout=30),
    declare("boot-arm", changes={"boot": ("UNKNOWN", "WAIT")}, requires=_ON, timeout=10),
    declare(
        "boot-wait",
        changes={"boot": ("WAIT", "INIT"), "run": ("UNKNOWN", "INIT")},
        requires=_ON,
        timeout=180,
        on_timeout=_HANG,
    ),
    declare(
        "attach", changes={"run": ("INIT", "SYNC")}, requires=_ON, timeout=30, on_timeout=_HANG
    ),
    declare(
        "await-return",
        changes={"run": ("ERROR", "SYNC")},
        requires=_ON,
        timeout=60,
        on_timeout=_HANG,
    ),
    declare(
        "image-discover",
        changes={"image": ("UNKNOWN", "IDLE")},
        requires=_SYNC,
        where=Where.NODE,
        timeout=20,
    ),
    declare(
        "busy-discover",
        changes={"busy": ("UNKNOWN", "FREE")},
        requires=_SYNC,
        where=Where.NODE,
        timeout=10,
    ),
    declare(
        "image-start",
        changes={"image": ("IDLE", "ACTIVE")},
        requires=_SYNC,
        where=Where.NODE,
        timeout=300,
        on_timeout=("image", "ERROR"),
    ),
    declare(
        "image-stop",
        changes={"image": ("ACTIVE", "IDLE")},
        requires=_SYNC,
        excludes=_BUSY,
        where=Where.NODE,
        timeout=60,
        on_timeout=("image", "ERROR"),
    ),
    declare(
        "image-update",
        changes={"image": ("UPDATE", "ACTIVE")},
        requires=_SYNC,
        excludes=_BUSY,
        where=Where.NODE,
        timeout=300,
        on_timeout=("image", "ERROR"),
    ),
    declare(
        "image-drop",
        changes={"image": ("UPDATE", "IDLE")},
        requires=_SYNC,
        excludes=_BUSY,
        where=Where.NODE,
        timeout=60,
        on_timeout=("image", "ERROR"),
    ),
    declare(
        "image-retry",
        changes={"image": ("ERROR", "ACTIVE")},
        requires=_SYNC,
        where=Where.NODE,
        timeout=300,
        on_timeout=("image", "FATAL"),
    ),
    declare(
        "image-clear",
        changes={"image": ("ERROR", "IDLE")},
        requires=_SYNC,
        where=Where.NODE,
        timeout=60,
        on_timeout=("image", "FATAL"),
    ),
    declare(
        "detach",
        changes={"run": ("SYNC", "INIT")},
        requires={"image": "IDLE"},
        where=Where.NODE,
        timeout=10,
    ),
)


def planner() -> Planner:
    """A planner over the production table."""
    return Planner(MUTATIONS, VARIABLES)


def up(p: Planner) -> Goal:
    """The goal of a node that should run its images."""
    return p.layout.goal({"power": "ON", "run": "SYNC", "image": "ACTIVE"})


def off(p: Planner) -> Goal:
    """The goal of a node that should be powered off."""
    return p.layout.goal({"power": "OFF"})
