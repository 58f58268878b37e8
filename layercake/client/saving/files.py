"""The inventory file that is written: only while it says what is in force, and in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layercake.base.files import write_atomic
from layercake.base.text import count_of
from layercake.client.command import FAILED, OK
from layercake.client.inventory_file import inventory_request
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, OperationFailed

if TYPE_CHECKING:
    from layercake.client.http import Client

SHOWN = 100
"""Characters of the nodes that a message names."""


def write(path: Path, text: str) -> None:
    """Replaces the file; its owner and mode stay. Raises OperationFailed."""
    target = path.resolve()
    try:
        status = target.stat()
        write_atomic(target, text, mode=status.st_mode & 0o7777, durable=True)
        if os.geteuid() == 0:
            os.chown(target, status.st_uid, status.st_gid)
    except OSError as error:
        raise OperationFailed(f"cannot write {path}: {error.strerror}") from error


def in_force(head: Client, file: str) -> str:
    """The text of a file that says what is in force. Raises InputError for another one: what it
    says besides would be hidden in what is written."""
    request = inventory_request(file)
    if differing := others(head.post("/v1/inventory/plan", request)):
        raise InputError(
            f"cannot save to {file}: it differs from what is in force: {differing}",
            hint=f"`layercake plan {file}` shows how; apply it first, or put it right",
        )
    return request["yaml"]


def others(planned: dict[str, Any]) -> str:
    """What a plan changes, in words; "" for nothing."""
    nodes = [change["node"] for change in planned["changes"]]
    networks = [change["node"] for change in planned.get("networks") or []]
    text = fold(nodes)
    named = text if len(text) <= SHOWN else count_of(len(nodes), "node")
    return ", ".join(filter(None, (named, *(f"the network {name}" for name in networks[:5]))))


class EntryFile:
    """A file whose entries are changed by `edit`, from one text to another. Raises InputError,
    before anything is changed, for a file that says something else than what is in force."""

    def __init__(self, head: Client, file: str, edit: Callable[[str], str]) -> None:
        self._head = head
        self._file = file
        self._text = edit(in_force(head, file))

    def refuse_others(self, node: str) -> None:
        """Raises InputError if the file would change another node too."""
        if (changed := self._differs()) not in ("", node):
            raise InputError(
                f"cannot save to {self._file}: {changed} would change by it",
                hint=f"write it into the entry of {node} by hand",
            )

    def _differs(self) -> str:
        request = {"yaml": self._text, "file": self._file}
        return others(self._head.post("/v1/inventory/plan", request))

    def write(self, *, rolls: bool) -> tuple[int, str]:
        """Writes it, now that the head has the change, or rolls it out; the exit code, and what
        there is to say."""
        differs = "" if rolls else self._differs()
        if differs:
            why = f"groups or defaults there want something else of {differs}"
            return FAILED, f"; {self._file} is as it was: {why}"
        write(Path(self._file), self._text)
        return OK, f", and {self._file} says so"
