"""From an OCI image's configuration to how Layercake runs it: pure.

The fields are those of imageapi/spec/container.py. What Layercake has no word for is said in a note
and not silently left out. Source: OCI image-spec 1.0, config.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import InputError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SYSTEMD_STOP = ("SIGRTMIN+3", "37")
"""The signal that systemd ends at: only its images ask for it."""

_INITS = (
    "/sbin/init",
    "/usr/sbin/init",
    "/lib/systemd/systemd",
    "/usr/lib/systemd/systemd",
    "/bin/systemd",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an image wants to be run. `command` empty stands for systemd, or for /init of a plain
    image; `cwd` is where it starts; `notes` says in words what could not be taken over."""

    systemd: bool | None = None
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    notes: tuple[str, ...] = ()


def read(config: Mapping[str, Any]) -> Recipe:
    """The recipe of an OCI image configuration (its "config" object). Raises InputError for wrong
    types."""
    command = (*_word_list(config, "Entrypoint"), *_word_list(config, "Cmd"))
    env, notes = _environment(config)
    stop = _text(config, "StopSignal")
    systemd = _is_systemd(command, stop)
    if stop and not systemd and stop.removeprefix("SIG") not in ("TERM", "15"):
        notes.append(f"StopSignal {stop[:20]} is not sent: a container is asked to end by SIGTERM")
    user = _text(config, "User")
    if user and user.split(":")[0] not in ("0", "root"):
        notes.append(f"User {user[:60]} is left out: the init of a system image is root")
    cwd = _text(config, "WorkingDir") or "/"
    if not cwd.startswith("/"):
        raise InputError(
            f"cannot use the image's configuration: WorkingDir {cwd[:80]!r} is not absolute"
        )
    return Recipe(systemd, command, env, cwd, tuple(notes))


def _is_systemd(command: Sequence[str], stop: str) -> bool | None:
    """True for an image that starts systemd, None for one that does not say."""
    if command:
        return command[0] in _INITS or None
    return stop in _SYSTEMD_STOP or None


def _environment(config: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The variables, by name, and notes about what is none."""
    env: dict[str, str] = {}
    notes: list[str] = []
    for item in _word_list(config, "Env"):
        name, equals, value = item.partition("=")
        if equals and _VARIABLE.fullmatch(name):
            env[name] = value
        else:
            notes.append(f"Env {name[:60]!r} is left out: it is no name of a variable")
    return tuple(sorted(env.items())), notes


def _word_list(config: Mapping[str, Any], name: str) -> list[str]:
    values = config.get(name) or []
    if not isinstance(values, list) or not all(
        isinstance(value, str) and "\0" not in value for value in values
    ):
        raise InputError(f"cannot use the image's configuration: {name} is not a list of words")
    return values


def _text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name) or ""
    if not isinstance(value, str) or "\0" in value:
        raise InputError(f"cannot use the image's configuration: {name} is not text")
    return value
