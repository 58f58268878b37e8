"""What a container may ask for beside its program: limits, devices, hooks, a health check. Checked, frozen facts.

A field that was not given does not stand in the wire form either, so a plain image's description stays small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import InputError

NAMESPACES = ("pid", "ipc", "uts", "mount", "cgroup", "network")
"""Those that a container may have of its own; a user namespace would need mapped files on a read-only squashfs."""

DEFAULT_NAMESPACES = ("pid", "ipc", "uts", "mount", "cgroup")
HOOKS = ("createRuntime", "createContainer", "startContainer", "poststart", "poststop")
CHECKS = ("exec", "tcp", "http", "systemd")
START_MAX = 240.0
"""Seconds; a set that takes longer to start than its mutation may (300 s) could never be ACTIVE."""

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")
_DEVICE = re.compile(r"/dev(/[A-Za-z0-9][A-Za-z0-9._:-]*)+")


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits by cgroup v2: bytes of memory (the writable part of its root counts too), processors, processes; 0 is no limit."""

    memory: int = 0
    cpus: float = 0.0
    pids: int = 0

    @property
    def controllers(self) -> tuple[str, ...]:
        """The cgroup controllers that these limits need."""
        return tuple(name for name, value in (("memory", self.memory), ("cpu", self.cpus), ("pids", self.pids)) if value)

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_resources` reads."""
        return {name: value for name, value in (("memory", self.memory), ("cpus", self.cpus), ("pids", self.pids)) if value}


@dataclass(frozen=True, slots=True)
class Health:
    """How to see that a container does its work.

    exec: a command inside that ends with 0. tcp: a port that takes a connection. http: a path that answers 200 to 399.
    systemd: a unit that is active. A check that takes longer than `timeout_s` has failed; `retries` failures in a row
    make the container unhealthy. For `start_s` seconds after its start failures do not count.
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


NO_LIMITS = Resources()


def fail(what: str, value: object, expected: str) -> InputError:
    """The error for a container field that cannot be used."""
    return InputError(f"cannot use image {what}: got {str(value)[:80]!r}, expected {expected}")


def _number(data: Mapping[str, Any], name: str, default: float, low: float, high: float, what: str) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise fail(f"{what} {name}", value, f"a number from {low:g} to {high:g}")
    return value


def _whole(data: Mapping[str, Any], name: str, default: int, low: int, high: int, what: str) -> int:
    value = _number(data, name, default, low, high, what)
    if not isinstance(value, int):
        raise fail(f"{what} {name}", value, "a whole number")
    return value


def _known(data: object, names: tuple[str, ...], what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise fail(what, data, "a mapping")
    for key in data:
        if key not in names:
            raise fail(what, key, ", ".join(names))
    return data


def words(value: object, what: str) -> tuple[str, ...]:
    """A command as a list of words, the first of them not empty."""
    if not isinstance(value, list) or not value or not all(isinstance(w, str) and "\0" not in w for w in value) or not value[0]:
        raise fail(what, value, "a list of words")
    return tuple(value)


def absolute(value: object, what: str) -> str:
    """An absolute path without "..": it names something inside a container or on the node."""
    if not isinstance(value, str) or not value.startswith("/") or ".." in value.split("/") or "\0" in value or len(value) > 4000:
        raise fail(what, value, "an absolute path without ..")
    return value


def parse_resources(data: object) -> Resources:
    """Limits from their wire form. Raises InputError."""
    found = _known(data, ("memory", "cpus", "pids"), "resources")
    return Resources(_whole(found, "memory", 0, 0, 1 << 50, "resources"), float(_number(found, "cpus", 0, 0, 4096, "resources")),
                     _whole(found, "pids", 0, 0, 1 << 22, "resources"))


def parse_health(data: object) -> Health:
    """A health check from its wire form. Raises InputError."""
    names = ("kind", "command", "port", "path", "unit", "interval_s", "timeout_s", "retries", "start_s")
    found = _known(data, names, "health")
    kind, path, unit = found.get("kind"), found.get("path", "/"), found.get("unit", "")
    if kind not in CHECKS:
        raise fail("health kind", kind, ", ".join(CHECKS))
    command = words(found.get("command"), "health command") if kind == "exec" else ()
    port = _whole(found, "port", 0, 1, 65535, "health") if kind in ("tcp", "http") else 0
    if not isinstance(path, str) or not path.startswith("/") or not path.isprintable() or " " in path or not path.isascii():
        raise fail("health path", path, "a path that begins with /")
    if kind == "systemd" and (not isinstance(unit, str) or not _UNIT.fullmatch(unit) or unit.startswith("-")):
        raise fail("health unit", unit, "the name of a systemd unit")
    return Health(kind, command, port, path if kind == "http" else "/", unit if kind == "systemd" else "",
                  float(_number(found, "interval_s", 10, 0.1, 3600, "health")),
                  float(_number(found, "timeout_s", 5, 0.1, 300, "health")), _whole(found, "retries", 3, 1, 100, "health"),
                  float(_number(found, "start_s", 30, 0, START_MAX, "health")))


def parse_namespaces(value: object, systemd: bool) -> tuple[str, ...]:
    """A container's own namespaces. Raises InputError."""
    if not isinstance(value, list) or len(set(map(str, value))) != len(value) or not all(n in NAMESPACES for n in value):
        raise fail("namespaces", value, f"a list of some of {', '.join(NAMESPACES)}")
    needed = ("mount", "pid", "cgroup") if systemd else ("mount",)
    for name in needed:
        if name not in value:
            raise fail("namespaces", value, f"{name} among them" + (", which systemd needs" if systemd else ""))
    return tuple(name for name in NAMESPACES if name in value)


def parse_hooks(data: object) -> tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]:
    """OCI hooks: for each point in a container's life, commands whose first word is an absolute path. Raises InputError."""
    found = _known(data, HOOKS, "hooks")
    hooks = []
    for name in HOOKS:
        commands = found.get(name, [])
        if not isinstance(commands, list):
            raise fail(f"hooks {name}", commands, "a list of commands")
        parsed = tuple(words(command, f"hooks {name}") for command in commands)
        for command in parsed:
            absolute(command[0], f"hooks {name}")
        if parsed:
            hooks.append((name, parsed))
    return tuple(hooks)


def parse_devices(value: object) -> tuple[str, ...]:
    """Devices of the node that the container gets. Raises InputError."""
    if not isinstance(value, list) or not all(isinstance(d, str) and _DEVICE.fullmatch(d) for d in value):
        raise fail("devices", value, "a list of paths under /dev")
    return tuple(sorted(set(value)))


def parse_hostname(value: object) -> str:
    """A host name. Raises InputError."""
    if not isinstance(value, str) or not _HOST.fullmatch(value) or len(value) > 64:
        raise fail("hostname", value, "a host name of at most 64 characters")
    return value
