"""What the head wants a node to run, checked before anything is done with it.

Names come from people and from the network: they become file names, mount points and cgroup names, so they are
validated here and never used raw elsewhere.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from imageapi.node import options, rbd, verity
from imageapi.node.objectspec import MountSpec, parse_container_mount
from imageapi.node.options import Health, Resources
from imageapi.node.rbd import RbdSource
from imageapi.node.verity import Verity
from layercake.kraken.errors import InputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
"""Digits, dots and dashes anywhere, and one tag after a colon: "web", "app2.0-rc1:2026.11"."""

DIGEST = re.compile(r"blake2b:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESTARTS = ("on-failure", "never", "always")
CONTAINER_FIELDS = ("systemd", "command", "env", "stop_timeout_s", "restart", "depends", "health", "resources", "devices", "hooks",
                    "mounts", "workdir", "namespaces", "hostname")
"""All that may stand in a container description."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """How an image is run. `command` empty stands for the image's own: /sbin/init with systemd, else /init.

    `depends` names images of the same set that must be up, and healthy, before this one is started; a name without a
    tag means whatever tag the set has of it. `hostname` "" is the node's own name.
    """

    systemd: bool = False
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    stop_timeout_s: float = 10.0
    restart: str = "on-failure"
    depends: tuple[str, ...] = ()
    health: Health | None = None
    resources: Resources = options.NO_LIMITS
    devices: tuple[str, ...] = ()
    hooks: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    mounts: tuple[MountSpec, ...] = ()
    workdir: str = "/"
    namespaces: tuple[str, ...] = options.DEFAULT_NAMESPACES
    hostname: str = ""

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_container` reads. What was not asked for does not stand in it."""
        more: dict[str, Any] = {
            "depends": list(self.depends), "health": self.health and self.health.to_wire(), "resources": self.resources.to_wire(),
            "devices": list(self.devices), "hooks": {name: [list(c) for c in commands] for name, commands in self.hooks},
            "mounts": [m.to_wire() for m in self.mounts], "workdir": self.workdir if self.workdir != "/" else "",
            "namespaces": list(self.namespaces) if self.namespaces != options.DEFAULT_NAMESPACES else [],
            "hostname": self.hostname,
        }
        return {"systemd": self.systemd, "command": list(self.command) or None, "env": dict(self.env),
                "stop_timeout_s": self.stop_timeout_s, "restart": self.restart} | {k: v for k, v in more.items() if v}


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One image of the set. `digest` is blake2b:HEX of the squashfs file, `size` its bytes.

    With `attach` it is read from a cluster as it is needed, checked by `verity`; without, it is fetched from `url` as a whole.
    """

    name: str
    digest: str
    size: int
    url: str
    container: ContainerSpec
    attach: RbdSource | None = None
    verity: Verity | None = None

    @property
    def hex(self) -> str:
        """The digest without its algorithm: names the file."""
        return self.digest.partition(":")[2]

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_image` reads."""
        return {"name": self.name, "digest": self.digest, "size": self.size, "url": self.url,
                "container": self.container.to_wire(),
                **({"attach": self.attach.to_wire()} if self.attach else {}),
                **({"verity": self.verity.to_wire()} if self.verity else {})}


def _is_variable(key: object, value: object) -> bool:
    """Whether this may stand in a process's environment."""
    return isinstance(key, str) and bool(_VARIABLE.fullmatch(key)) and isinstance(value, str) and "\0" not in value


def parse_container(data: Mapping[str, Any]) -> ContainerSpec:
    """A container description from its wire form. Raises InputError."""
    command, env = data.get("command") or [], data.get("env") or {}
    timeout, restart = data.get("stop_timeout_s", 10), data.get("restart", "on-failure")
    if not isinstance(command, list) or not all(isinstance(c, str) and "\0" not in c for c in command):
        raise options.fail("command", command, "a list of words")
    if not isinstance(env, dict) or not all(_is_variable(k, v) for k, v in env.items()):
        raise options.fail("environment", sorted(env) if isinstance(env, dict) else "no mapping", "a mapping of NAME to text")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= 3600:
        raise options.fail("stop_timeout_s", timeout, "0 to 3600 seconds")
    if restart not in RESTARTS:
        raise options.fail("restart", restart, ", ".join(RESTARTS))
    basic = ContainerSpec(bool(data.get("systemd")), tuple(command), tuple(sorted(env.items())), float(timeout), restart)
    return _parse_options(basic, data)


def _parse_options(basic: ContainerSpec, data: Mapping[str, Any]) -> ContainerSpec:
    """The fields that most containers do without. Null is as good as absent."""
    given = {name: value for name, value in data.items() if value is not None}
    depends, mounts = given.get("depends", []), given.get("mounts", [])
    if not isinstance(depends, list) or not all(isinstance(d, str) and NAME.fullmatch(d) for d in depends):
        raise options.fail("depends", depends, "a list of image names")
    if not isinstance(mounts, list):
        raise options.fail("mounts", mounts, "a list")
    health = options.parse_health(given["health"]) if "health" in given else None
    if health and health.kind == "systemd" and not basic.systemd:
        raise options.fail("health", "a systemd check", "that only where systemd is true")
    namespaces = given.get("namespaces") or list(options.DEFAULT_NAMESPACES)
    hostname = options.parse_hostname(given["hostname"]) if given.get("hostname") else ""
    if hostname and "uts" not in namespaces:
        raise options.fail("hostname", hostname, "uts among the namespaces: else it would be the node's")
    return dataclasses.replace(
        basic, depends=tuple(sorted(set(depends))), health=health, resources=options.parse_resources(given.get("resources", {})),
        devices=options.parse_devices(given.get("devices", [])), hooks=options.parse_hooks(given.get("hooks", {})),
        mounts=tuple(parse_container_mount(m) for m in mounts), workdir=options.absolute(given.get("workdir") or "/", "workdir"),
        namespaces=options.parse_namespaces(namespaces, basic.systemd), hostname=hostname)


def parse_image(data: Mapping[str, Any]) -> ImageSpec:
    """One image of D["images"]. Raises InputError that names the field."""
    name, digest, size, url = data.get("name"), data.get("digest"), data.get("size"), data.get("url")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise options.fail("name", name, "letters, digits, dots, dashes and one :tag")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise options.fail("digest", digest, "blake2b: and 64 hex digits")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise options.fail("size", size, "a number of bytes")
    if not isinstance(url, str) or not re.match(r"(https?://|file:///)\S+\Z", url):
        raise options.fail("url", url, "an http://, https:// or file:/// address")
    attach = rbd.parse(data["attach"]) if data.get("attach") else None
    tree = verity.parse(data["verity"]) if data.get("verity") else None
    if attach and not tree:
        raise options.fail("attach", "no verity", "a hash tree: what comes from a cluster is checked block by block")
    return ImageSpec(name, digest, size, url, parse_container(data.get("container") or {}), attach, tree)


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
