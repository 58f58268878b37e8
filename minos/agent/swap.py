"""The agent's own replacement: what the head hands over is fetched, checked, and left to the
supervisor (minos/programs.py).

The head says in the desired state which agent shall run, as {"set", "digest", "size", "signature",
"ask"}: the boot set that it belongs to, what it is, and the signature of the head's authority over
that. Nothing else is ever executed. The same `ask` is tried once: one that was given up is not
tried again until a person asks again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.files import write_atomic
from layercake.base.signatures import by_certificate
from layercake.base.text import whole_number
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable
from layercake.kraken.wire import bearer
from minos.agent.head_link.connection import HeadConnection
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Config, Session
from minos.events import AGENT, AGENT_SWAP_FAILED, AGENT_SWAPPED
from minos.programs import OWN, directory, read

LIMIT = 16 << 20
TRIES = 6
"""How often the head is asked for it, with growing pauses."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


def signed(name: str, digest: str, size: int) -> bytes:
    """What the head's authority signs of an agent."""
    return f"layercake agent\n{name}\n{digest}\n{size}\n".encode()


def verify(authority: Path, data: bytes, signature: bytes) -> None:
    """Raises Refused if none of the authorities' certificates (PEM) proves the signature of the
    data."""
    if not by_certificate(authority.read_bytes(), data, signature):
        raise Refused("it is not signed by the head's authority")


def _ask_of(words: str) -> int:
    """The ask in "NAME ASK WHY", 0 if there is none."""
    return whole_number([*words.split(" ", 2), ""][1], 1 << 63) or 0


class Swap:
    """Replaces the agent. `ready` says that the other one waits: this one may end as soon as it has
    nothing to do."""

    def __init__(self, config: Config, event: EventSink, wake: Callable[[], None]) -> None:
        self._config = config
        self._event = event
        self._wake = wake
        self._tried = 0
        self._good = False
        self._next = ""
        directory(config.run).mkdir(mode=0o700, exist_ok=True)

    def begin(self) -> None:
        """Says which agent runs, and what became of one that was tried before."""
        config = self._config
        self._event(
            AGENT,
            f"the agent is that of {config.agent or 'no boot set'}",
            boot=config.boot,
            agent=config.agent,
        )
        self._tried = max(self._tried, _ask_of(read(config.run, "given-up")))
        self._look_at_failure()

    def _look_at_failure(self) -> None:
        """Tells of one that the supervisor gave up; once."""
        if failed := read(self._config.run, "failed"):
            name, _, why = failed.partition(" ")
            self._tried = max(self._tried, _ask_of(failed))
            self._next = ""
            self._event(
                AGENT_SWAP_FAILED,
                f"the agent of {name} was given up: {why.partition(' ')[2]}",
                ask=_ask_of(failed),
            )
            (directory(self._config.run) / "failed").replace(
                directory(self._config.run) / "given-up"
            )

    @property
    def pending(self) -> bool:
        """Whether another agent gets ready, or has failed to: the supervisor writes that down."""
        return bool(self._next)

    @property
    def ready(self) -> bool:
        """Whether another agent waits for this one to end."""
        if not self._next:
            return False
        self._look_at_failure()
        return bool(self._next) and read(self._config.run, "ready") == self._next

    def answered(self) -> None:
        """The head has answered: an agent on trial is good."""
        config = self._config
        if self._good or not config.agent:
            return
        self._good = True
        name = OWN if config.agent == config.boot else config.agent
        if (before := read(config.run, "good")) != name:
            write_atomic(directory(config.run) / "good", name)
            if before:
                self._event(AGENT_SWAPPED, f"the agent is that of {config.agent} from now on")

    def set_desired(self, order: object, session: Session) -> None:
        """Takes over which agent the head wants; None if it says nothing of that."""
        config = self._config
        if not isinstance(order, Mapping) or not config.agent:
            return
        name = str(order.get("set", ""))
        ask = order.get("ask")
        if name == config.agent or not isinstance(ask, int) or ask <= self._tried or self._next:
            return
        self._tried = ask
        threading.Thread(
            target=self._get, args=(name, ask, dict(order), session), name="swap", daemon=True
        ).start()

    def _get(self, name: str, ask: int, order: dict[str, Any], session: Session) -> None:
        """Runs on a thread: fetches and checks, and leaves it to the supervisor."""
        try:
            if name == self._config.boot:
                name = OWN
            else:
                self._check(name, order)
                write_atomic(
                    directory(self._config.run) / f"{name}.zip", self._fetch(name, order, session)
                )
            write_atomic(directory(self._config.run) / "next", f"{name} {ask}\n")
        except (LayercakeError, OSError, ValueError, TypeError, KeyError) as error:
            self._event(
                AGENT_SWAP_FAILED, f"the agent of {name[:64]} cannot be used: {error}", ask=ask
            )
            return
        self._next = name
        os.kill(os.getppid(), signal.SIGUSR1)
        self._wake()

    def _check(self, name: str, order: Mapping[str, Any]) -> None:
        """Raises OperationFailed or Refused for an agent that the head's authority has not
        signed."""
        digest = str(order["digest"])
        size = int(order["size"])
        if (
            not 0 < len(name) <= 64
            or name[0] in "._-"
            or set(name) - _NAME
            or name == OWN
            or not 0 < size <= LIMIT
        ):
            raise OperationFailed("its name or size is not as agreed")
        verify(
            self._config.authority,
            signed(name, digest, size),
            base64.b64decode(order["signature"], validate=True),
        )

    def _fetch(self, name: str, order: Mapping[str, Any], session: Session) -> bytes:
        config = self._config
        failures = 0
        headers = {"Authorization": bearer(session.key, config.node_bytes, session.number)}
        connection = HeadConnection(config, session)
        while True:
            try:
                status, data = connection.request("GET", f"/node/v1/agent/{name}", headers)
                break
            except Unreachable:
                failures += 1
                if failures == TRIES:
                    raise
                time.sleep(backoff(failures, 0.5, 10.0))
            finally:
                connection.close()
        if status != 200:
            raise OperationFailed(f"the head answers {status}")
        if (
            len(data) != order["size"]
            or hashlib.blake2b(data, digest_size=32).hexdigest() != order["digest"]
        ):
            raise Refused("what came is not what the head has signed")
        return data
