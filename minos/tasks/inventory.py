"""The key `uinit` of the inventory: tasks that minOS does once in each boot, before the node's
images start."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.moduleapi.fields import Check, Mistake, mapping, matching, number, text
from layercake.moduleapi.module import NodePart

MAX_TASKS = 100
MAX_WORDS = 64
MAX_WORD = 4096
MAX_ENTRIES = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_KEY = re.compile(r"[a-z0-9_]+([./][A-Za-z0-9_:*-]+)+")
_MODULE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.]{1,64}(=[!-~]{0,256})?")
_TYPE = re.compile(r"[a-z0-9_.-]{1,32}")
_OPTIONS = re.compile(r"[!-~]{1,1024}")


def _path(value: object) -> str:
    path = text(value)
    if (
        not path.startswith("/")
        or len(path) > MAX_WORD
        or not path.isprintable()
        or ".." in path.split("/")
    ):
        raise Mistake(f"{show(path)} is no path", "absolute, without .., as /scratch")
    return path


def _sysctl(value: object) -> dict[str, str]:
    """Kernel parameters (sysctl(8))."""
    if not isinstance(value, dict) or not value or len(value) > MAX_ENTRIES:
        raise Mistake(
            f"expected a mapping of up to {MAX_ENTRIES} parameters, found {describe(value)}",
            "as {vm.swappiness: 1}",
        )
    settings = {}
    for key, its in value.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or ".." in key:
            raise Mistake(f"{show(str(key))} is no kernel parameter", "as net.ipv4.tcp_rmem")
        settings[key] = _parameter(key, its)
    return settings


def _parameter(key: str, value: object) -> str:
    """The value of a kernel parameter. Raises Mistake."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        value_text = str(value)
        if value_text and len(value_text) <= MAX_WORD and value_text.isprintable():
            return value_text
    raise Mistake(f"{key}: expected a number or a text, found {describe(value)}")


def _modules(value: object) -> list[str]:
    """Kernel modules, each perhaps with parameters."""
    names = value if isinstance(value, list) else [value]
    for module in names:
        name, *parameters = text(module).split() or [""]
        if not _MODULE.fullmatch(name) or not all(map(_PARAMETER.fullmatch, parameters)):
            raise Mistake(
                f"{show(text(module))} is no kernel module",
                'a name, and perhaps its parameters: "nfs callback_tcpport=4000"',
            )
    if not names or len(names) > MAX_ENTRIES:
        raise Mistake(f"expected up to {MAX_ENTRIES} kernel modules, found {len(names)}")
    return [" ".join(text(module).split()) for module in names]


def _run(value: object) -> list[str]:
    """A command and its arguments."""
    if not isinstance(value, list) or not value or len(value) > MAX_WORDS:
        raise Mistake(
            f"expected a command as a list of words, found {describe(value)}",
            "as [/usr/local/bin/tune, --fast]",
        )
    arguments = [text(argument) for argument in value]
    if (
        any("\0" in argument or len(argument) > MAX_WORD for argument in arguments)
        or not arguments[0]
    ):
        raise Mistake("a word of the command is empty, too long, or has a zero byte")
    return arguments


def _mount(value: object) -> dict[str, str]:
    """A file system to be mounted."""
    return mapping(
        value,
        {
            "what": matching(_OPTIONS, "device or source"),
            "where": _path,
            "type": matching(_TYPE, "file system"),
            "options": matching(_OPTIONS, "mount options"),
        },
        ("what", "where", "type"),
    )


def _when(value: object) -> dict[str, str]:
    """Where a task is done."""
    conditions: dict[str, str] = mapping(
        value,
        {
            "exists": _path,
            "missing": _path,
            "arch": matching(_TYPE, "architecture"),
            "firmware": matching(_TYPE, "firmware"),
        },
    )
    return conditions


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task."""

    sysctl: Annotated[
        dict[str, str],
        Check(_sysctl),
        Meta(description="Kernel parameters that are set: {vm.swappiness: 1}."),
    ] = msgspec.field(default_factory=dict)
    modules: Annotated[
        list[str],
        Check(_modules),
        Meta(description="Kernel modules that are loaded, each perhaps with parameters."),
    ] = msgspec.field(default_factory=list)
    mount: Annotated[
        dict[str, str],
        Check(_mount),
        Meta(
            description="A file system that is mounted: {what: 10.0.0.5:/home, where: /home, type: "
            "nfs4, options: ro}. Its directory "
            "is made."
        ),
    ] = msgspec.field(default_factory=dict)
    run: Annotated[
        list[str],
        Check(_run),
        Meta(
            description="A command of minOS, or a file for `minos`, as a list of words. No shell "
            "reads it."
        ),
    ] = msgspec.field(default_factory=list)
    order: Annotated[
        int, Meta(ge=0, le=1000, description="Tasks are done by this number, then by name.")
    ] = 50
    when: Annotated[
        dict[str, str],
        Check(_when),
        Meta(
            description="It is done only where all of it holds: {exists: PATH, missing: PATH, "
            "arch: x86_64, firmware: uefi}."
        ),
    ] = msgspec.field(default_factory=dict)
    timeout_s: Annotated[
        float,
        Check(number(0.001, 3600, "seconds", kind=float)),
        Meta(description="Seconds after which it is ended, and has failed."),
    ] = 60.0
    retries: Annotated[
        int, Meta(ge=0, le=10, description="How often it is tried again, with growing pauses.")
    ] = 0
    on_failure: Annotated[
        Literal["hold", "go-on"],
        Meta(
            description="When it has failed, the node's images do not start (hold), or they do "
            "(go-on)."
        ),
    ] = "hold"


class Tasks(NodePart, frozen=True, kw_only=True):
    """A node's tasks, by their names."""

    KEY: ClassVar[str] = "uinit"
    ENTRY: ClassVar[type[msgspec.Struct] | None] = Task
    WHOLE: ClassVar[bool] = True

    entries: dict[str, Task] = msgspec.field(default_factory=dict)


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All tasks of a node. Raises Mistake for what does not go together."""
    if len(given) > MAX_TASKS:
        raise Mistake(f"{len(given)} tasks, a node has {MAX_TASKS} at most")
    tasks = {name: Task(**fields) for name, fields in given.items()}
    for name, one in tasks.items():
        if not _NAME.fullmatch(name):
            raise Mistake(
                f"{show(name)} cannot be a task's name",
                "1 to 63 of a-z 0-9 _ . -, as scratch or 10-tune",
                f"{name}.",
            )
        kinds = [key for key in ("sysctl", "modules", "mount", "run") if getattr(one, key)]
        if len(kinds) != 1:
            problem = f"has {' and '.join(kinds)}" if kinds else "does not say what is to be done"
            raise Mistake(
                f"task {name} {problem}",
                "give it one of sysctl, modules, mount and run",
                f"{name}.",
            )
    return {"entries": tasks}


def node_document(part: Tasks | None) -> dict[str, Any]:
    """What a node is told with its desired state: its tasks, in their order; nothing where there
    are none."""
    if part is None:
        return {}
    tasks = sorted(part.entries.items(), key=lambda item: (item[1].order, item[0]))
    return {"uinit": [{"name": name, **msgspec.to_builtins(one)} for name, one in tasks]}


def view(part: Tasks | None) -> dict[str, Any]:
    """What people see of it with the node: the names."""
    return {} if part is None else {"uinit": sorted(part.entries)}
