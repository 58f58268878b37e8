"""Health checks: their kinds, their fields, and what a container's health can be.

How a node carries each kind out is in imageapi/node/health/probes.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from imageapi.spec.fields import fail, known, number, whole, words

CHECKS = {
    "exec": "a command inside the container that ends with 0",
    "tcp": "a port that takes a connection",
    "http": "a path that answers 200 to 399",
    "systemd": "a systemd unit that is active",
}
"""{kind: what it asks for}"""

STARTING, HEALTHY, UNHEALTHY = "starting", "healthy", "unhealthy"
"""What a container with a health check is; one without a check has the health ""."""

START_MAX = 240.0
"""Seconds; a set that takes longer to start than its mutation may (300 s) could never be ACTIVE."""

_FIELDS = ("kind", "command", "port", "path", "unit", "interval_s", "timeout_s", "retries", "start_s")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")


@dataclass(frozen=True, slots=True)
class Health:
    """How to see that a container does its work.

    A check that takes longer than `timeout_s` has failed; `retries` failures in a row make the container unhealthy. For
    `start_s` seconds after its start failures do not count.
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

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_health` reads."""
        table: dict[str, dict[str, Any]] = {"exec": {"command": list(self.command)}, "tcp": {"port": self.port},
                                            "http": {"port": self.port, "path": self.path}, "systemd": {"unit": self.unit}}
        what = table[self.kind]
        return {"kind": self.kind, **what, "interval_s": self.interval_s, "timeout_s": self.timeout_s, "retries": self.retries,
                "start_s": self.start_s}

    def __str__(self) -> str:
        return {"exec": f"exec {' '.join(self.command)}", "tcp": f"tcp port {self.port}",
                "http": f"http port {self.port} {self.path}", "systemd": f"unit {self.unit}"}[self.kind]


def parse_health(data: object) -> Health:
    """A health check from its wire form. Raises InputError."""
    found = known(data, _FIELDS, "health")
    kind, path, unit = found.get("kind"), found.get("path", "/"), found.get("unit", "")
    if not isinstance(kind, str) or kind not in CHECKS:
        raise fail("health kind", kind, ", ".join(CHECKS))
    command = words(found.get("command"), "health command") if kind == "exec" else ()
    port = whole(found, "port", 0, 1, 65535, "health") if kind in ("tcp", "http") else 0
    if not isinstance(path, str) or not path.startswith("/") or not path.isprintable() or " " in path or not path.isascii():
        raise fail("health path", path, "a path that begins with /")
    if kind == "systemd" and (not isinstance(unit, str) or not _UNIT.fullmatch(unit) or unit.startswith("-")):
        raise fail("health unit", unit, "the name of a systemd unit")
    return Health(kind, command, port, path if kind == "http" else "/", unit if kind == "systemd" else "",
                  float(number(found, "interval_s", 10, 0.1, 3600, "health")),
                  float(number(found, "timeout_s", 5, 0.1, 300, "health")), whole(found, "retries", 3, 1, 100, "health"),
                  float(number(found, "start_s", 30, 0, START_MAX, "health")))
