"""Serves what images ask of their node, on this machine alone: the address is that of clouds, on
the loopback interface, and what comes by another one does not get there.

Any container may listen at port 80, so the agent is there first: the socket is bound before a
container starts, and stays with the supervisor when the agent ends (minos.programs). The address
is there only once the socket is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from layercake.base.quotas import SlotPool
from layercake.kraken.errors import OperationFailed
from minos import programs
from minos.agent.http.server import REASONS, BadRequest, parse_request
from minos.agent.metadata.answers import FACTS, TTL, Answered, Answers

ADDRESS = "169.254.169.254"
PORT = 80
LOOPBACK = 1
"""The number of the loopback interface."""
HEAD_LIMIT = 8192
PATIENCE_S = 5.0
AT_ONCE = 16
EACH = 4
"""Connections at once, of all images and of one: a newcomer takes the place of the oldest of its
own, or of the image with the most, so that none keeps the others out."""
MOST_IMAGES = 256
_IP_FREEBIND = 15
"""To bind an address that this machine does not have yet (ip(7))."""


def add_address() -> None:
    """Gives the loopback interface the address. One that it has is fine. Raises OSError."""
    from minos.netlink import Netlink, new_address  # here: most nodes serve none

    link = Netlink()
    try:
        with contextlib.suppress(FileExistsError):
            link.request(
                new_address(LOOPBACK, socket.AF_INET, socket.inet_aton(ADDRESS), 32, link.next()),
                f"address {ADDRESS}",
            )
    finally:
        link.close()


def listen(address: str = ADDRESS, port: int = PORT) -> socket.socket:
    """A listening socket that hears the loopback interface alone: that of the agent before, if the
    supervisor has one. Raises OSError."""
    listener = programs.kept_socket() or socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if not listener.getsockname()[1]:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            listener.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
            listener.bind((address, port))
        listener.listen(AT_ONCE)
    except OSError:
        listener.close()
        raise
    return listener


def open_own() -> socket.socket:
    """Where images ask, on minOS. Raises OSError."""
    listener = listen()
    try:
        add_address()
    except OSError:
        listener.close()
        raise
    return listener


def anybody(client: socket.socket) -> str:
    """Where nobody tells images apart: what is said to all."""
    return ""


class Metadata:
    """The service: there as soon as the head says something for it. `opened` gives its socket,
    `asker` the image that a connection is from, None if it is from none."""

    def __init__(
        self,
        opened: Callable[[], socket.socket],
        clock: Callable[[], float] = time.monotonic,
        asker: Callable[[socket.socket], str | None] = anybody,
    ) -> None:
        self._opened = opened
        self._clock = clock
        self._asker = asker
        self._files: Mapping[str, bytes] = {}
        self._of_images: Mapping[str, Mapping[str, bytes]] = {}
        self._answers: dict[str, Answers] = {}
        self._alone = threading.Lock()
        self._slots: SlotPool[socket.socket] = SlotPool(EACH, AT_ONCE)
        self._listener: socket.socket | None = None

    def update(
        self,
        files: Mapping[str, bytes],
        of_images: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ) -> None:
        """What is said from now on, to all images and besides to some; nothing is served before
        there is something. Raises OperationFailed."""
        try:
            with self._alone:
                served = FACTS in files
                self._files = files if served else {}
                self._of_images = of_images if served else {}
                for image, answers in self._answers.items():
                    answers.update(self._said_to(image))
            if not served:
                return
            if self._listener is None:
                self._listener = self._opened()
                threading.Thread(
                    target=self._accept, args=(self._listener,), name="metadata", daemon=True
                ).start()
        except (OSError, ValueError) as error:
            raise OperationFailed(f"cannot serve metadata at {ADDRESS}: {error}") from None

    def _said_to(self, image: str) -> dict[str, bytes]:
        """What is said to an image: for it with its tag goes before for its name."""
        name = image.partition(":")[0]
        own = [self._of_images.get(one, {}) for one in (name, image)]
        return {path: data for files in (self._files, *own) for path, data in files.items()}

    def _answers_to(self, image: str) -> Answers:
        with self._alone:
            found = self._answers.get(image)
            if found is None:
                found = Answers(self._clock)
                found.update(self._said_to(image))
                while len(self._answers) >= MOST_IMAGES:
                    del self._answers[next(iter(self._answers))]
                self._answers[image] = found
            return found

    def close(self) -> None:
        """Serves no more."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # closed
            try:
                image = self._asker(client)
            except OSError:
                client.close()
                continue
            owner = "" if image is None else image
            with self._alone:
                evicted = self._slots.add(owner, client)
            if evicted is not None:
                with contextlib.suppress(OSError):
                    evicted.shutdown(socket.SHUT_RDWR)
            threading.Thread(
                target=self._serve, args=(client, image), name="metadata-client", daemon=True
            ).start()

    def _serve(self, client: socket.socket, image: str | None) -> None:
        try:
            with client:
                _send(client, self._exchange(client, image))
        except OSError:
            return  # there is nobody to answer
        finally:
            with self._alone:
                self._slots.remove("" if image is None else image, client)

    def _exchange(self, client: socket.socket, image: str | None) -> Answered:
        deadline = time.monotonic() + PATIENCE_S
        data = b""
        while b"\r\n\r\n" not in data:
            left = deadline - time.monotonic()
            if left <= 0 or len(data) > HEAD_LIMIT:
                return Answered(413 if left > 0 else 400)
            client.settimeout(left)
            if not (more := client.recv(HEAD_LIMIT)):
                return Answered(400)
            data += more
        try:
            request = parse_request(data.partition(b"\r\n\r\n")[0])
        except BadRequest as error:
            return Answered(error.status)
        if image is None:
            return Answered(403)
        return self._answers_to(image).answer(request.method, request.path, request.headers)


def _send(client: socket.socket, answered: Answered) -> None:
    body = (
        answered.body
        if answered.status == 200
        else f"{answered.status} {REASONS[answered.status]}\n".encode()
    )
    lines = [
        f"HTTP/1.1 {answered.status} {REASONS[answered.status]}",
        "Content-Type: text/plain",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"{TTL}: {answered.ttl}"] if answered.ttl else []),
    ]
    client.settimeout(PATIENCE_S)
    client.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
