"""What an agent starts with, while the rest is still being imported: its inbox, its stored session,
and the link, which joins."""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable
from typing import Any

from layercake.kraken.events import EventKind, Severity
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.head_link.link import HeadLink, Joined, Message, Renewed
from minos.agent.state import Config, SessionFile


class Inbox:
    """A queue that a selector can wait for: `reader` is readable when there is something in it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def post(self, message: object) -> None:
        """Hands something over; from any thread."""
        self._queue.put(message)
        self.wake()

    def wake(self) -> None:
        """Makes the reader readable; from any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._writer, b"x")

    def drain(self) -> list[Any]:
        """All that is there, oldest first."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, 4096)
        items = []
        while not self._queue.empty():
            items.append(self._queue.get())
        return items


class Pressed:
    """A message to the loop: the power button was pressed."""


class Look:
    """A message to the loop: the images are in another state."""


class AgentCore:
    """`session` is that of an earlier agent of this boot, None if there is none. Raises
    OperationFailed.

    `say` writes a line on the console, `wall` gives the time of day in seconds, `jitter` a number
    in [0, 1).
    """

    def __init__(
        self,
        config: Config,
        *,
        say: Callable[[str], None],
        wall: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.config = config
        self.say = say
        self.jitter = jitter
        self.inbox = Inbox()
        self.file = SessionFile(config.run)
        self.session = self.file.load(config)
        self.image_key = self.session.image_key if self.session else b""
        self.head_ports = self.session.head_ports if self.session else {}
        self.heads = KnownHeads(config)
        self.link = HeadLink(
            config, self.session, self.heads, self._receive, now=wall, jitter=jitter
        )

    def event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        """Something happened: into the node's history on the head, and on the console if it is not
        mere detail. From any thread."""
        if (severity or kind.severity) is not Severity.DEBUG:
            self.say(f"agent: {text.splitlines()[0]}")
        self.link.report_event(kind, text, severity, **data)

    def check_images(self) -> None:
        """Asks the loop to look at the images. From any thread."""
        self.inbox.post(Look())

    def _receive(self, message: Message) -> None:
        """A session is written down at once: the token is used up, and whatever happens to this
        process, the next can go on."""
        if isinstance(message, Joined | Renewed):
            self.file.save(self.config, message.session)
            self.image_key = message.session.image_key
            self.head_ports = message.session.head_ports
        self.inbox.post(message)
