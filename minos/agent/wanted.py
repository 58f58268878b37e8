"""The wanted state: the document that the head sends, taken over by the machine and the images; and
the head's requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Protocol

from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.agent.head_link.link import HeadLink
from minos.agent.machine import Machine
from minos.agent.state import SessionFile


class NodeImages(Protocol):
    """The images, as the agent sees them (imageapi.node.imageset)."""

    def want_documents(self, images: Sequence[Mapping[str, Any]]) -> bool:
        """Sets what is wanted; whether it is something else than before. What cannot be used is
        told and changes nothing."""

    def stage_documents(self, images: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """Sets what shall be ready beside what runs; says of each when it is, again if `anew`. What
        cannot be used is told."""

    def state(self) -> str:
        """The value of the variable image."""

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends."""

    def ended(self, name: str) -> str:
        """A container ended; the new state."""

    def clear(self) -> None:
        """Forgets failures."""

    def logs(self, name: str, lines: int) -> str:
        """The last lines of a container. Raises InputError."""

    def report_containers(self, again: bool = False) -> None:
        """Tells the head how the containers are."""

    def trim_logs(self) -> None:
        """Bounds the logs."""


Settled = Callable[[], bool]
"""Whether all devices of this machine have the drivers that they will have."""
Orders = Callable[[Settled, Mapping[str, Any]], Mapping[str, Any]]
"""Carries an order of the head's out that ends what is kept on this machine (minos.erase.orders).
Raises LayercakeError."""


def no_orders(settled: Settled, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an agent whose machine is not its own."""
    raise OperationFailed("cannot do that: this agent does not run in minOS")


_NO_ORDERS = partial(no_orders, lambda: False)
COMMANDS = ("exec", "copy")
"""The kinds of requests that go on for as long as they stand in the desired state."""


class Commands(Protocol):
    """What the head asks many nodes for at once (layercake.node.commands)."""

    def begin(
        self, request: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Begins a request, which `answer` is called for once."""

    def cancel_others(self, keys: Set[str]) -> None:
        """Calls off all but the requests with these keys."""


class NoCommands:
    """Of an agent that carries none out."""

    def begin(
        self, request: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """See Commands."""
        answer({"ok": False, "error": "cannot do that: this agent carries out no commands"})

    def cancel_others(self, keys: Set[str]) -> None:
        """See Commands."""


NO_COMMANDS = NoCommands()


def check(document: object) -> None:
    """Raises OperationFailed if a document is not as agreed (wire reference, D)."""
    if not isinstance(document, Mapping):
        raise OperationFailed(
            "cannot take the desired state: it is no object",
            hint="are head and minOS of the same version?",
        )
    kinds: Mapping[str, type] = {
        "revision": int,
        "images": list,
        "stage": list,
        "goal": dict,
        "requests": list,
    }
    wrong = [
        name for name, kind in kinds.items() if not isinstance(document.get(name) or kind(), kind)
    ]
    revision = document.get("revision")
    requests = document.get("requests") or []
    if (
        wrong
        or type(revision) is not int
        or not 0 <= revision < 1 << 64
        or not all(map(_is_request, requests))
    ):
        raise OperationFailed(
            f"cannot take the desired state: {', '.join(wrong) or 'its revision or a request'} is "
            "not as agreed",
            hint="are head and minOS of the same version?",
        )


def _is_request(request: object) -> bool:
    return (
        isinstance(request, Mapping)
        and type(request.get("id")) is int
        and type(request.get("lines", 0)) is int
    )


class Wanted:
    """What the head wants of this node. `interrupt` asks the mutation under way to give up."""

    def __init__(
        self,
        images: NodeImages,
        machine: Machine,
        link: HeadLink,
        file: SessionFile,
        interrupt: Callable[[], None],
        orders: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _NO_ORDERS,
        commands: Commands = NO_COMMANDS,
    ) -> None:
        self.revision = 0
        self._images = images
        self._machine = machine
        self._link = link
        self._file = file
        self._interrupt = interrupt
        self._orders = orders
        self._commands = commands
        self._answered: set[int] = set()
        self._anew = True

    def head_restarted(self) -> None:
        """The head may have missed what was said of staged images."""
        self._anew = True

    def accept(self, document: Mapping[str, Any], first: bool = False) -> None:
        """Takes a desired state over. `first` is the one that a session begins with: it forgives no
        failures. Raises OperationFailed; nothing has changed then."""
        check(document)
        machine = self._machine
        images = self._images
        self.revision = document["revision"]
        changed = images.want_documents(document.get("images") or [])
        anew = self._anew
        self._anew = False
        images.stage_documents(document.get("stage") or [], anew)
        goal = machine.goal_of(document.get("goal") or {})
        if changed:
            self._interrupt()
        if not first and goal != machine.node.goal:
            images.clear()
        self._file.save_desired(document)
        if (document.get("goal") or {}).get("run") == "SYNC" and machine.value("run") == "INIT":
            machine.discovered({"run": "SYNC"}, "the node is wanted again")
        machine.desired(goal, changed, images.state())
        self._answer(document.get("requests") or [])

    def _answer(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """All of the head's requests; what is no longer among them is called off. Numbers are a
        head's own, and those of one that has ended come no more."""
        self._answered &= {request["id"] for request in requests}
        for request in requests:
            self._request(request)
        self._commands.cancel_others(
            {str(r.get("key", "")) for r in requests if r.get("kind") in COMMANDS}
        )

    def _request(self, request: Mapping[str, Any]) -> None:
        """One of the head's requests; each number is answered once."""
        number = request["id"]
        images = self._images
        if number in self._answered:
            return
        self._answered.add(number)
        if request.get("kind") == "clear":
            images.clear()
            self._machine.clear("cleared by the head's operator")
            self._machine.images_are(images.state())
            self._link.answer(number, {"ok": True})
        elif request.get("kind") == "logs":
            name = str(request.get("container", ""))
            lines = max(1, min(request.get("lines", 200), 10_000))
            threading.Thread(target=self._logs, args=(number, name, lines), daemon=True).start()
        elif request.get("kind") in COMMANDS:
            self._commands.begin(request, lambda body: self._link.answer(number, dict(body)))
        elif request.get("kind") in ("erase", "clear-tpm"):
            threading.Thread(
                target=self._ordered, args=(number, dict(request)), daemon=True
            ).start()
        else:
            self._link.answer(
                number,
                {
                    "ok": False,
                    "error": f"this agent does not know {str(request.get('kind'))[:40]!r}",
                },
            )

    def _logs(self, number: int, name: str, lines: int) -> None:
        """Runs on a thread: asking a systemd journal takes its time."""
        try:
            self._link.answer(number, {"ok": True, "text": self._images.logs(name, lines)})
        except (LayercakeError, OSError) as error:
            self._link.answer(number, {"ok": False, "error": str(error)})

    def _ordered(self, number: int, request: Mapping[str, Any]) -> None:
        """Runs on a thread: a TPM takes its time, and so do disks."""
        try:
            self._link.answer(number, {"ok": True, **self._orders(request)})
        except (LayercakeError, OSError) as error:
            self._link.answer(number, {"ok": False, "error": str(error)})
