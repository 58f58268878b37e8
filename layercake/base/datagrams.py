"""A datagram socket that is read from the running event loop. For servers on the head; asyncio's
own transports cost a call each.

So many datagrams are read at a stretch, then others have their turn; what is left is read in the
next round of the loop.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

SO_RCVBUFFORCE = 33
BUFFER_BYTES = 8 << 20
"""What the kernel keeps while the loop is busy: a rack that is switched on speaks all at once."""
_IP_FREEBIND = 15
_IPV6_FREEBIND = 78
LATE_S = 0.1
LATE_SLICE_S = 0.002
"""From here on what has come waits too long: who is not answered says it again, and there is only
more of it. It is read for so many seconds at a stretch then."""


def _reserve_buffer(made: socket.socket) -> None:
    """Asks for a receive buffer of BUFFER_BYTES. Root of a user namespace, as in a simulation, gets
    what net.core.rmem_max allows; `layercake check` reports that of a real head."""
    try:
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def free_bind(address: str) -> tuple[int, int, int]:
    """The socket option by which an address can be bound that this machine does not have yet
    (ip(7), IP_FREEBIND)."""
    return (
        (socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        if ":" in address
        else (socket.IPPROTO_IP, _IP_FREEBIND, 1)
    )


class DatagramServer:
    """One socket. `receive` is called with each datagram and its source; `failed` when reading
    fails, but for an empty socket. Of a socket that has been behind for LATE_S, more are read at a
    stretch. `turn` is called when there is something, and reads it with `read`; without, all is
    read. One that was read less than `gather_s` ago is read again when that is over, and so on: a
    turn of the loop costs more than a datagram."""

    def __init__(
        self,
        receive: Callable[[bytes, Any], None],
        *,
        at_once: int = 256,
        size: int = 2048,
        turn: Callable[[], object] | None = None,
        gather_s: float = 0.0,
        failed: Callable[[OSError], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._receive = receive
        self._turn = turn or self.read
        self._failed = failed
        self._clock = clock
        self._gather_s = gather_s
        self._last = 0.0
        self._came = False
        self._later: asyncio.TimerHandle | None = None
        self._at_once = at_once
        self._size = size
        self._behind: float | None = None
        self.socket: socket.socket | None = None

    def open(self, address: tuple[str, int], *options: tuple[int, int, int | bytes]) -> None:
        """Binds a UDP socket with these socket options and reads it from the running loop. Raises
        OSError; nothing is open then."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            _reserve_buffer(sock)
            for level, option, value in options:
                sock.setsockopt(level, option, value)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        self.socket = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        if self._turn() or not self._gather_s or self.socket is None:
            return  # what is left is read in the next round
        loop = asyncio.get_running_loop()
        last = self._last
        self._last = loop.time()
        if self._last - last < 2 * self._gather_s:
            loop.remove_reader(self.socket.fileno())
            self._later = loop.call_later(self._gather_s, self._again)

    def _again(self) -> None:
        """What has come meanwhile is read; the loop looks at the socket again when that was
        nothing."""
        self._later = None
        self._came = False
        if self.socket is None:
            return
        loop = asyncio.get_running_loop()
        more: object = True
        try:
            more = self._turn()
        finally:  # also after a datagram that could not be handled
            if self.socket is None:  # what was read has closed it
                pass
            elif more or self._came:
                self._later = loop.call_later(0.0 if more else self._gather_s, self._again)
            else:
                loop.add_reader(self.socket.fileno(), self._readable)

    def close(self) -> None:
        """Closes the socket, if it is open."""
        sock = self.socket
        self.socket = None
        if self._later is not None:
            self._later.cancel()
        if sock is not None:
            if sock.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()

    @property
    def behind_s(self) -> float:
        """For how many seconds not all has been read that has come: what comes now waits about as
        long."""
        return 0.0 if self._behind is None else self._clock() - self._behind

    def read(self, at_once: int = 0) -> bool:
        """Reads what is there, up to so many or the limit for one turn. Says whether there may be
        more."""
        sock = self.socket
        receive = self._receive
        size = self._size
        left = at_once or self._at_once
        until = (
            time.perf_counter() + LATE_SLICE_S if not at_once and self.behind_s >= LATE_S else 0.0
        )
        while left > 0 or time.perf_counter() < until:
            left -= 1
            if sock is None or self.socket is not sock:
                return False
            try:
                data, source = sock.recvfrom(size)
            except (BlockingIOError, InterruptedError):
                self._behind = None
                return False
            except OSError as error:
                self._failed(error)
                return False
            self._came = True
            receive(data, source)
        if self._behind is None:
            self._behind = self._clock()
        return True
