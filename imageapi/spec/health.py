"""Health checks: their kinds, their fields, and what a container's health can be.

How a node carries each kind out is in imageapi/node/health/probes.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imageapi.spec.fields import command_words, fail, known, matching, number, whole

CHECKS = {
    "exec": "a command inside the container that ends with 0",
    "tcp": "a port that takes a connection",
    "http": "a path that answers 200 to 399",
    "systemd": "a systemd unit that is active; without `unit`, systemd itself: it has finished "
    "starting, and no unit has failed",
    "none": "asked for nothing: it is well as long as it runs",
}
"""{kind: what it asks for}"""

STARTING = "starting"
HEALTHY = "healthy"
UNHEALTHY = "unhealthy"
DEGRADED = "degraded"
"""What a container with a health check is; one without a check has the health "". DEGRADED: its
systemd was well and is so no more. That is told and nothing else is done: work may go on in there,
and systemd has rules of its own for units that fail."""

START_MAX = 240.0
"""Seconds; a set that takes longer to start than its mutation may (300 s) could never be ACTIVE."""

SYSTEM_START_S = 120.0
"""How long systemd as a whole has to finish starting, in seconds, unless the check says
otherwise."""

_FIELDS = (
    "kind",
    "command",
    "port",
    "path",
    "unit",
    "allow_failed",
    "interval_s",
    "timeout_s",
    "retries",
    "start_s",
)
_HTTP_PATH = re.compile("/[!-~]*")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")


@dataclass(frozen=True, slots=True)
class Health:
    """How to see that a container does its work.

    A check that takes longer than `timeout_s` has failed; `retries` failures in a row make the
    container unhealthy. For `start_s` seconds after its start failures do not count; that is 120 if
    systemd itself is asked. `allow_failed` names the units that may have failed all the same.
    A check that says more than 1 MiB has failed.
    """

    kind: str
    command: tuple[str, ...] = ()
    port: int = 0
    path: str = "/"
    unit: str = ""
    interval_s: float = 10.0
    timeout_s: float = 5.0
    retries: int = 3
    start_s: float = 30.0
    allow_failed: tuple[str, ...] = ()

    @property
    def of_system(self) -> bool:
        """Whether it asks systemd as a whole."""
        return self.kind == "systemd" and not self.unit

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_health` reads."""
        table: dict[str, dict[str, Any]] = {
            "exec": {"command": list(self.command)},
            "tcp": {"port": self.port},
            "http": {"port": self.port, "path": self.path},
            "systemd": {"unit": self.unit},
        }
        if self.kind == "none":
            return {"kind": "none"}
        if self.of_system:
            table["systemd"] = (
                {"allow_failed": list(self.allow_failed)} if self.allow_failed else {}
            )
        what = table[self.kind]
        return {
            "kind": self.kind,
            **what,
            "interval_s": self.interval_s,
            "timeout_s": self.timeout_s,
            "retries": self.retries,
            "start_s": self.start_s,
        }

    def __str__(self) -> str:
        return {
            "exec": f"exec {' '.join(self.command)}",
            "tcp": f"tcp port {self.port}",
            "http": f"http port {self.port} {self.path}",
            "systemd": f"unit {self.unit}" if self.unit else "systemd",
            "none": "none",
        }[self.kind]


def parse_health(data: object) -> Health:
    """A health check from its wire form; the word none alone is as good as that kind. Raises
    InputError."""
    fields = known({"kind": "none"} if data == "none" else data, _FIELDS, "health")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in CHECKS:
        raise fail("health kind", kind, ", ".join(CHECKS))
    path = matching(fields.get("path", "/"), "health path", _HTTP_PATH, "a path that begins with /")
    unit = fields.get("unit", "") if kind == "systemd" else ""
    if unit != "":
        unit = _unit_name(unit, "health unit")
    start_s = SYSTEM_START_S if kind == "systemd" and not unit else 30
    return Health(
        kind,
        command_words(fields.get("command"), "health command") if kind == "exec" else (),
        whole(fields, "port", 0, 1, 65535, "health") if kind in ("tcp", "http") else 0,
        path if kind == "http" else "/",
        unit,
        float(number(fields, "interval_s", 10, 0.1, 3600, "health")),
        float(number(fields, "timeout_s", 5, 0.1, 300, "health")),
        whole(fields, "retries", 3, 1, 100, "health"),
        float(number(fields, "start_s", start_s, 0, START_MAX, "health")),
        _allowed(fields, kind, unit),
    )


def _unit_name(value: object, what: str) -> str:
    if not isinstance(value, str) or not _UNIT.fullmatch(value) or value.startswith("-"):
        raise fail(what, value, "the name of a systemd unit")
    return value


def _allowed(found: Mapping[str, Any], kind: str, unit: str) -> tuple[str, ...]:
    """The units that may have failed; a name without a suffix is that of a service, as for
    systemctl."""
    value = found.get("allow_failed") or []
    if not isinstance(value, list):
        raise fail("health allow_failed", value, "a list of systemd units")
    if value and (kind != "systemd" or unit):
        raise fail(
            "health allow_failed",
            ", ".join(map(str, value)),
            "it only where systemd itself is asked: no unit",
        )
    names = {_unit_name(name, "health allow_failed") for name in value}
    return tuple(sorted(name if "." in name else f"{name}.service" for name in names))


SYSTEM_CHECK = Health("systemd", start_s=SYSTEM_START_S)
"""The check of a container with systemd whose description names none."""
