"""How warm nodes are, and the key of the inventory that says what is done about it. A module of its
own, without a process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from layercake.base.text import describe, nearest, show
from layercake.features.thermal.events import EVENTS
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.fields import Check, Mistake, matching, number
from layercake.moduleapi.module import Module, NodePart, Part

NORMAL = "NORMAL"
HIGH = "HIGH"
CRITICAL = "CRITICAL"
THERMAL = Variable(
    "thermal",
    (UNKNOWN, NORMAL, HIGH, CRITICAL),
    "how warm the node is, by the worse of its own sensors and its BMC's; kept while nobody says "
    "anything else",
)
ACTIONS = ("governor", "cap", "drain", "off")
_CAP_MOST = 65535


def actions(*known: str) -> Any:
    """A check for what is done."""

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise Mistake(f"expected a list of {', '.join(known)}, found {describe(value)}")
        for word in value:
            if word not in known:
                hint = "off is for critical alone" if word == "off" else nearest(str(word), known)
                raise Mistake(f"expected some of {', '.join(known)}, found {show(str(word))}", hint)
        return tuple(dict.fromkeys(value))

    return check


class Thermal(NodePart, frozen=True, kw_only=True):
    """What is done when a node is too warm; without it that is told of, and nothing is done."""

    KEY: ClassVar[str] = "thermal"

    high: Annotated[
        tuple[Literal["governor", "cap", "drain"], ...],
        Check(actions("governor", "cap", "drain")),
        Meta(
            description="What is done at HIGH, and at CRITICAL. governor: the node's processors "
            "get another frequency governor; cap: "
            "its BMC caps what it draws; drain: rolls leave it out. All of it ends when the node "
            "is NORMAL."
        ),
    ] = ()
    critical: Annotated[
        tuple[Literal["governor", "cap", "drain", "off"], ...],
        Check(actions(*ACTIONS)),
        Meta(
            description="What is done at CRITICAL beside that. off: the node is wanted off: its "
            "images stop, then its power goes; a "
            "person says when it is wanted up again."
        ),
    ] = ()
    governor: Annotated[
        str,
        Check(matching(re.compile(r"[a-z_]{1,15}"), "governor of Linux' cpufreq")),
        Meta(description="The governor that it gets."),
    ] = "powersave"
    cap_w: Annotated[
        int | None, Check(number(1, _CAP_MOST, "watts")), Meta(description="The watts of the cap.")
    ] = None
    bmc: Annotated[
        bool,
        Meta(
            description="Whether its BMC's sensors count too; they are read once a minute, which "
            "many BMCs are slow "
            "at."
        ),
    ] = False


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """Raises Mistake for a cap of no watts, and for what no action would use."""
    if given.get("cap_w") is None and "cap" in (*given.get("high", ()), *given.get("critical", ())):
        raise Mistake(
            "thermal.cap_w is missing, and its power shall be capped", "as cap_w: 300", "high"
        )
    wanted = (*given.get("high", ()), *given.get("critical", ()))
    for key, action in (("governor", "governor"), ("cap_w", "cap")):
        if given.get(key) is not None and action not in wanted:
            raise Mistake(
                f"thermal.{key} is given, and neither high nor critical has {action}: it would "
                "have no effect",
                f"write high: [{action}], or remove it",
                key,
            )
    return given


def due(part: Thermal | None, state: str) -> frozenset[str]:
    """What is done to a node in a state."""
    if part is None or state not in (HIGH, CRITICAL):
        return frozenset()
    return frozenset((*part.high, *(part.critical if state == CRITICAL else ())))


def tells(part: Thermal | None) -> dict[str, Any]:
    """What the node itself is told: its governors by state; nothing where it has none."""
    found = {
        state: part.governor
        for state in (HIGH, CRITICAL)
        if part is not None and "governor" in due(part, state)
    }
    return {"thermal": found} if found else {}


def held(part: Thermal | None, values: Mapping[str, str]) -> str:
    """Why rolls are to leave a node out."""
    state = values.get(THERMAL.name, UNKNOWN)
    return f"it is too warm: {state}" if "drain" in due(part, state) else ""


def worse(*states: str) -> str:
    """The worst of some states, UNKNOWN being none."""
    return max(states, key=THERMAL.values.index, default=UNKNOWN)


MODULE = Module(
    name="thermal",
    doc="How warm nodes are, and what is done about it.",
    part=Part(Thermal, complete),
    variables=(THERMAL,),
    tells=tells,
    held=held,
    events=EVENTS,
    gives_way=True,
)
