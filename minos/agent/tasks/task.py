"""One task of the site (minos.tasks.inventory): checked, and done. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layercake.base.logs.child_output import end_of_output
from layercake.base.scheduling.threads import of_parent
from layercake.kraken.errors import OperationFailed

TAIL = 2000
"""Bytes of what a command says last: the rest is not kept."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Task:
    """What the head said of it. `commands` are what is run for it, in order; `parameters` what is
    written below /proc/sys."""

    name: str
    commands: tuple[tuple[str, ...], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    where: str = ""
    """The directory that is mounted on; it is made."""
    when: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    retries: int = 0
    holds: bool = True


def parse(data: object) -> Task:
    """A task from its wire form. Raises OperationFailed."""
    try:
        if not isinstance(data, Mapping):
            raise TypeError("it is no object")
        mount = data.get("mount") or {}
        sysctl = data.get("sysctl") or {}
        parameters = tuple((str(key), str(value)) for key, value in sysctl.items())
        if any(".." in key or key.startswith("/") for key, _ in parameters):
            raise ValueError("a kernel parameter that is none")
        return Task(
            str(data["name"]),
            _commands(data, mount),
            parameters,
            str(mount.get("where", "")),
            dict(data.get("when") or {}),
            float(data.get("timeout_s", 60.0)),
            int(data.get("retries", 0)),
            data.get("on_failure", "hold") != "go-on",
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OperationFailed(
            f"cannot take the site's tasks: what the head says is not as agreed: {error!r}",
            hint="are head and minOS of the same version?",
        ) from None


def _commands(data: Mapping[str, Any], mount: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """What a task runs, in its order. Raises KeyError, TypeError."""
    commands: list[tuple[str, ...]] = [tuple(map(str, data["run"]))] if data.get("run") else []
    commands += [("modprobe", *str(module).split()) for module in data.get("modules") or ()]
    if mount:
        options = ("-o", str(mount["options"])) if mount.get("options") else ()
        what = str(mount["what"])
        where = str(mount["where"])
        commands.append(("mount", "-t", str(mount["type"]), *options, what, where))
    return tuple(commands)


def applies(task: Task, traits: Mapping[str, str]) -> bool:
    """Whether it is to be done here."""
    for condition, its in task.when.items():
        if condition in ("exists", "missing") and Path(its).exists() != (condition == "exists"):
            return False
        if condition in ("arch", "firmware") and traits.get(condition) != its:
            return False
    return True


def do(
    task: Task,
    environment: Mapping[str, str],
    clock: Callable[[], float],
    proc: Path = Path("/proc"),
) -> None:
    """Does it once, in `timeout_s` seconds. Raises OperationFailed with the end of what was
    said."""
    deadline = clock() + task.timeout_s
    for key, value in task.parameters:
        try:
            (proc / "sys" / key.replace(".", "/")).write_text(value)
        except OSError as error:
            raise OperationFailed(f"cannot set {key} to {value}: {error.strerror}") from None
    if task.where:
        try:
            Path(task.where).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationFailed(f"cannot make {task.where}: {error.strerror}") from None
        if os.path.ismount(task.where):
            return
    for command in task.commands:
        _run(command, environment, max(0.0, deadline - clock()), task.timeout_s)


def _run(
    command: tuple[str, ...], environment: Mapping[str, str], left: float, limit: float
) -> None:
    """A command with all of its group. Raises OperationFailed."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": PATH, "HOME": "/", **environment},
            start_new_session=True,
            preexec_fn=of_parent().apply,
        )
    except OSError as error:
        raise OperationFailed(f"cannot run {command[0][:100]}: {error.strerror}") from None
    try:
        output, late = end_of_output(process, left, TAIL)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and its group with it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    text = output.decode(errors="replace").strip()
    tail = f"; it said last:\n{text}" if text else ""
    if late:
        raise OperationFailed(f"{command[0][:100]} was ended after {limit:g} s{tail}")
    if process.returncode:
        raise OperationFailed(f"{command[0][:100]} ended with status {process.returncode}{tail}")
