"""What the head wants a node to run, checked before anything is done with it.

Names come from people and from the network: they become file names, mount points and cgroup names, so they are
validated here and never used raw elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from layercake.kraken.errors import InputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
"""Digits, dots and dashes anywhere, and one tag after a colon: "web", "app2.0-rc1:2026.11"."""

DIGEST = re.compile(r"blake2b:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESTARTS = ("on-failure", "never", "always")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """How an image is run. `command` empty stands for the image's own: /sbin/init with systemd, else /init."""

    systemd: bool = False
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    stop_timeout_s: float = 10.0
    restart: str = "on-failure"

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_container` reads."""
        return {"systemd": self.systemd, "command": list(self.command) or None, "env": dict(self.env),
                "stop_timeout_s": self.stop_timeout_s, "restart": self.restart}


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One image of the set. `digest` is blake2b:HEX of the squashfs file, `size` its bytes."""

    name: str
    digest: str
    size: int
    url: str
    container: ContainerSpec

    @property
    def hex(self) -> str:
        """The digest without its algorithm: names the file."""
        return self.digest.partition(":")[2]

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_image` reads."""
        return {"name": self.name, "digest": self.digest, "size": self.size, "url": self.url,
                "container": self.container.to_wire()}


def _fail(what: str, value: object, expected: str) -> InputError:
    return InputError(f"cannot use image {what}: got {str(value)[:80]!r}, expected {expected}")


def _is_variable(key: object, value: object) -> bool:
    """Whether this may stand in a process's environment."""
    return isinstance(key, str) and bool(_VARIABLE.fullmatch(key)) and isinstance(value, str) and "\0" not in value


def parse_container(data: Mapping[str, Any]) -> ContainerSpec:
    """A container description from its wire form. Raises InputError."""
    command, env = data.get("command") or [], data.get("env") or {}
    timeout, restart = data.get("stop_timeout_s", 10), data.get("restart", "on-failure")
    if not isinstance(command, list) or not all(isinstance(c, str) and "\0" not in c for c in command):
        raise _fail("command", command, "a list of words")
    if not isinstance(env, dict) or not all(_is_variable(k, v) for k, v in env.items()):
        raise _fail("environment", sorted(env) if isinstance(env, dict) else "no mapping", "a mapping of NAME to text")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= 3600:
        raise _fail("stop_timeout_s", timeout, "0 to 3600 seconds")
    if restart not in RESTARTS:
        raise _fail("restart", restart, ", ".join(RESTARTS))
    return ContainerSpec(bool(data.get("systemd")), tuple(command), tuple(sorted(env.items())), float(timeout), restart)


def parse_image(data: Mapping[str, Any]) -> ImageSpec:
    """One image of D["images"]. Raises InputError that names the field."""
    name, digest, size, url = data.get("name"), data.get("digest"), data.get("size"), data.get("url")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _fail("name", name, "letters, digits, dots, dashes and one :tag")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise _fail("digest", digest, "blake2b: and 64 hex digits")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise _fail("size", size, "a number of bytes")
    if not isinstance(url, str) or not re.match(r"(https?://|file:///)\S+\Z", url):
        raise _fail("url", url, "an http://, https:// or file:/// address")
    return ImageSpec(name, digest, size, url, parse_container(data.get("container") or {}))


def parse_images(data: list[Mapping[str, Any]]) -> tuple[ImageSpec, ...]:
    """The image set, by name. Raises InputError also for a name that occurs twice."""
    specs = sorted((parse_image(item) for item in data), key=lambda spec: spec.name)
    for first, second in pairwise(specs):
        if first.name == second.name:
            raise InputError(f"cannot use image set: {first.name} is in it twice")
    return tuple(specs)


def instance_id(spec: ImageSpec, counter: int) -> str:
    """A name for one running instance: readable, and never that of another instance, whatever the image is called."""
    slug = re.sub(r"[^A-Za-z0-9.-]", "_", spec.name)[:48]
    return f"{slug}-{spec.hex[:8]}-{counter}"
