"""A container's description: every field of container.yaml, its default and its check.

A field that was not given does not stand in the wire form either, so a plain image's description
stays small. The fields `health` and `mounts` are described in health.py and objects.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imageapi.spec.fields import absolute, command_words, fail, known, number, whole
from imageapi.spec.health import SYSTEM_CHECK, Health, parse_health
from imageapi.spec.names import NAME
from imageapi.spec.objects import MountSpec, is_of_node, parse_container_mount
from imageapi.spec.privileges import PRIVILEGES, WITHIN, parse_capabilities

CONTAINER_FIELDS = (
    "systemd",
    "command",
    "env",
    "stop_timeout_s",
    "restart",
    "depends",
    "health",
    "resources",
    "devices",
    "hooks",
    "mounts",
    "workdir",
    "namespaces",
    "hostname",
    "capabilities",
    "no_new_privileges",
    "user_namespace",
    "kernel_modules",
    "keep",
    "head_api",
)
"""All that may stand in a container description."""

_SWITCHES = ("user_namespace", "kernel_modules", "head_api")
"""What is off unless the description says true."""

RESTARTS = ("on-failure", "never", "always")
NAMESPACES = ("pid", "ipc", "uts", "mount", "cgroup", "network")
"""Those that a container may have of its own; the one of users has a field of its own,
`user_namespace`."""

DEFAULT_NAMESPACES = ("pid", "ipc", "uts", "mount", "cgroup")
HOOKS = ("createRuntime", "createContainer", "startContainer", "poststart", "poststop")

MOST_KEPT = 32
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_DEVICE = re.compile(r"/dev(/[A-Za-z0-9][A-Za-z0-9._:-]*)+")


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits by cgroup v2: bytes of memory (the writable part of its root counts too), processors,
    processes; 0 is no limit."""

    memory: int = 0
    cpus: float = 0.0
    pids: int = 0

    @property
    def controllers(self) -> tuple[str, ...]:
        """The cgroup controllers that these limits need."""
        return tuple(
            name
            for name, value in (("memory", self.memory), ("cpu", self.cpus), ("pids", self.pids))
            if value
        )

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_resources` reads."""
        return {
            name: value
            for name, value in (("memory", self.memory), ("cpus", self.cpus), ("pids", self.pids))
            if value
        }


NO_LIMITS = Resources()


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """How an image is run. `command` empty stands for the image's own: /sbin/init with systemd,
    else /init.

    `depends` names images of the same set that must be up, and healthy, before this one is started;
    a name without a tag means whatever tag the set has of it. `hostname` "" is the node's own name.
    `health` is what the description says of it; what is asked is `check`. `capabilities` are those
    beside privileges.LEAST. `no_new_privileges` None is as the init needs it: see `locked`.
    `user_namespace` makes the container's root a user of the node without rights. `kernel_modules`
    shows it the modules and the firmware of the node's kernel. `keep` are directories that outlive
    it, on a disk of the node. `head_api` lets it speak to the head's API.
    """

    systemd: bool = False
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    stop_timeout_s: float = 10.0
    restart: str = "on-failure"
    depends: tuple[str, ...] = ()
    health: Health | None = None
    resources: Resources = NO_LIMITS
    devices: tuple[str, ...] = ()
    hooks: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    mounts: tuple[MountSpec, ...] = ()
    workdir: str = "/"
    namespaces: tuple[str, ...] = DEFAULT_NAMESPACES
    hostname: str = ""
    capabilities: tuple[str, ...] = ()
    no_new_privileges: bool | None = None
    user_namespace: bool = False
    kernel_modules: bool = False
    keep: tuple[str, ...] = ()
    head_api: bool = False

    @property
    def locked(self) -> bool:
        """Whether sudo and other set-user-ID programs gain nothing. Where systemd runs, people may
        log in and need them."""
        return not self.systemd if self.no_new_privileges is None else self.no_new_privileges

    @property
    def privileges(self) -> tuple[str, ...]:
        """What it asks for that reaches the node itself, by the names in PRIVILEGES. In a user
        namespace capabilities are worth nothing on the node, and its processes are not its user's;
        hooks, devices and mounts are what they are."""
        asked = {
            "hooks": bool(self.hooks),
            "devices": bool(self.devices),
            "mounts": any(is_of_node(mount.spec) for mount in self.mounts),
            "capabilities": not self.user_namespace and not set(self.capabilities) <= set(WITHIN),
            "namespaces": not self.user_namespace and "pid" not in self.namespaces,
            "head_api": self.head_api,
        }
        return tuple(name for name in PRIVILEGES if asked[name])

    @property
    def check(self) -> Health | None:
        """How its health is seen, None if nobody asks. Without a word of its own an image with
        systemd has systemd asked."""
        if self.health is None:
            return SYSTEM_CHECK if self.systemd else None
        return None if self.health.kind == "none" else self.health

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_container` reads. What was not asked for does not stand in it."""
        more: dict[str, Any] = {
            "depends": list(self.depends),
            "health": self.health and self.health.to_wire(),
            "resources": self.resources.to_wire(),
            "devices": list(self.devices),
            "hooks": {name: [list(c) for c in commands] for name, commands in self.hooks},
            "mounts": [m.to_wire() for m in self.mounts],
            "workdir": self.workdir if self.workdir != "/" else "",
            "namespaces": list(self.namespaces) if self.namespaces != DEFAULT_NAMESPACES else [],
            "hostname": self.hostname,
            "capabilities": list(self.capabilities),
            "no_new_privileges": self.no_new_privileges,
            **{name: True for name in _SWITCHES if getattr(self, name)},
            "keep": list(self.keep),
        }
        return {
            "systemd": self.systemd,
            "command": list(self.command) or None,
            "env": dict(self.env),
            "stop_timeout_s": self.stop_timeout_s,
            "restart": self.restart,
        } | {k: v for k, v in more.items() if v or v is False}


def is_checked(container: Mapping[str, Any]) -> bool:
    """Whether a container with this description, sound and in its wire form, has a health check
    (ContainerSpec.check)."""
    health = container.get("health")
    return health["kind"] != "none" if health else bool(container.get("systemd"))


def parse_container(data: Mapping[str, Any]) -> ContainerSpec:
    """A container description from its wire form. Raises InputError."""
    if not isinstance(data, Mapping):
        raise fail("container", data, "a mapping")
    restart = data.get("restart", "on-failure")
    if not isinstance(data.get("systemd", False), bool):
        raise fail("systemd", data["systemd"], "true or false")
    if restart not in RESTARTS:
        raise fail("restart", restart, ", ".join(RESTARTS))
    basic = ContainerSpec(
        bool(data.get("systemd")),
        _parse_command(data.get("command") or []),
        _parse_environment(data.get("env") or {}),
        _parse_stop_timeout(data.get("stop_timeout_s", 10)),
        restart,
    )
    return _parse_options(basic, data)


def _parse_command(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(c, str) and "\0" not in c for c in value):
        raise fail("command", value, "a list of words")
    return tuple(value)


def _parse_environment(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise fail("environment", "no mapping", "a mapping of NAME to text")
    if not all(_is_variable(name, text) for name, text in value.items()):
        raise fail("environment", sorted(map(str, value)), "a mapping of NAME to text")
    return tuple(sorted(value.items()))


def _is_variable(key: object, value: object) -> bool:
    """Whether this may stand in a process's environment."""
    return (
        isinstance(key, str)
        and bool(_VARIABLE.fullmatch(key))
        and isinstance(value, str)
        and "\0" not in value
    )


def _parse_stop_timeout(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise fail("stop_timeout_s", value, "0 to 3600 seconds")
    return float(value)


def _parse_options(basic: ContainerSpec, data: Mapping[str, Any]) -> ContainerSpec:
    """The fields that most containers do without. Null is as good as absent."""
    options = {name: value for name, value in data.items() if value is not None}
    namespaces = parse_namespaces(
        options.get("namespaces") or list(DEFAULT_NAMESPACES), basic.systemd
    )
    return dataclasses.replace(
        basic,
        depends=_parse_names(options.get("depends", []), "depends", NAME, "a list of image names"),
        health=_parse_check(options["health"], basic.systemd) if "health" in options else None,
        resources=parse_resources(options.get("resources", {})),
        devices=parse_devices(options.get("devices", [])),
        hooks=parse_hooks(options.get("hooks", {})),
        mounts=_parse_mounts(options.get("mounts", [])),
        workdir=absolute(options.get("workdir") or "/", "workdir"),
        namespaces=namespaces,
        hostname=_parse_own_hostname(options["hostname"], namespaces)
        if options.get("hostname")
        else "",
        capabilities=parse_capabilities(options.get("capabilities", [])),
        user_namespace=_switch(options, "user_namespace") or False,
        no_new_privileges=_switch(options, "no_new_privileges"),
        kernel_modules=_switch(options, "kernel_modules") or False,
        keep=parse_keep(options.get("keep", []), shared=not options.get("user_namespace")),
        head_api=_switch(options, "head_api") or False,
    )


def _parse_check(value: object, systemd: bool) -> Health:
    health = parse_health(value)
    if health.kind == "systemd" and not systemd:
        raise fail("health", "a systemd check", "that only where systemd is true")
    return health


def _parse_mounts(value: object) -> tuple[MountSpec, ...]:
    if not isinstance(value, list):
        raise fail("mounts", value, "a list")
    return tuple(parse_container_mount(mount) for mount in value)


def _parse_own_hostname(value: object, namespaces: tuple[str, ...]) -> str:
    hostname = parse_hostname(value)
    if "uts" not in namespaces:
        raise fail("hostname", hostname, "uts among the namespaces: else it would be the node's")
    return hostname


def parse_keep(data: object, *, shared: bool) -> tuple[str, ...]:
    """Directories that outlive the container; `shared`: its root is the node's. Raises
    InputError."""
    entries = [data] if isinstance(data, str) else data
    if not isinstance(entries, list) or len(entries) > MOST_KEPT:
        raise fail("keep", entries, f"a path, or a list of up to {MOST_KEPT}")
    paths = [absolute(path, "keep").rstrip("/") for path in entries]
    if "" in paths or len(set(paths)) != len(paths):
        raise fail("keep", paths, "different paths below /")
    if paths and not shared:
        raise fail(
            "user_namespace",
            True,
            "false where directories are kept: on the disk they are the node's users'",
        )
    return tuple(paths)


def _switch(given: Mapping[str, Any], name: str) -> bool | None:
    """true or false, None if nothing is said. Raises InputError."""
    if name in given and not isinstance(given[name], bool):
        raise fail(name, given[name], "true or false")
    return given.get(name)


def parse_resources(data: object) -> Resources:
    """Limits from their wire form. Raises InputError."""
    fields = known(data, ("memory", "cpus", "pids"), "resources")
    return Resources(
        whole(fields, "memory", 0, 0, 1 << 50, "resources"),
        float(number(fields, "cpus", 0, 0, 4096, "resources")),
        whole(fields, "pids", 0, 0, 1 << 22, "resources"),
    )


def parse_namespaces(value: object, systemd: bool) -> tuple[str, ...]:
    """A container's own namespaces. Raises InputError."""
    if (
        not isinstance(value, list)
        or len(set(map(str, value))) != len(value)
        or not all(n in NAMESPACES for n in value)
    ):
        raise fail("namespaces", value, f"a list of some of {', '.join(NAMESPACES)}")
    needed = ("mount", "pid", "cgroup") if systemd else ("mount",)
    for name in needed:
        if name not in value:
            raise fail(
                "namespaces",
                value,
                f"{name} among them" + (", which systemd needs" if systemd else ""),
            )
    return tuple(name for name in NAMESPACES if name in value)


def parse_hooks(data: object) -> tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]:
    """OCI hooks: for each point in a container's life, commands whose first word is an absolute
    path. Raises InputError."""
    fields = known(data, HOOKS, "hooks")
    hooks = []
    for name in HOOKS:
        commands = fields.get(name, [])
        if not isinstance(commands, list):
            raise fail(f"hooks {name}", commands, "a list of commands")
        parsed = tuple(command_words(command, f"hooks {name}") for command in commands)
        for command in parsed:
            absolute(command[0], f"hooks {name}")
        if parsed:
            hooks.append((name, parsed))
    return tuple(hooks)


def parse_devices(value: object) -> tuple[str, ...]:
    """Devices of the node that the container gets. Raises InputError."""
    return _parse_names(value, "devices", _DEVICE, "a list of paths under /dev")


def _parse_names(value: object, name: str, form: re.Pattern[str], expected: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(word, str) and form.fullmatch(word) for word in value
    ):
        raise fail(name, value, expected)
    return tuple(sorted(set(value)))


def parse_hostname(value: object) -> str:
    """A host name. Raises InputError."""
    if not isinstance(value, str) or not _HOST.fullmatch(value) or len(value) > 64:
        raise fail("hostname", value, "a host name of at most 64 characters")
    return value
