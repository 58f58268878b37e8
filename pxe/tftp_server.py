"""The TFTP sockets: one that listens, one for each transfer (RFC 1350 section 4). One timer for all
transfers.

Each block of a boot program is a packet out and one in, by the thousand from each of a rack's
machines. So the sockets of all transfers are looked at by one epoll, and the blocks of a window
(RFC 7440) go to the kernel in one piece, which cuts them apart.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import select
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from layercake.base.datagrams import DatagramServer
from layercake.base.quotas import SlotPool
from layercake.kraken.errors import OperationFailed, Refused
from pxe.packets.tftp import (
    PLAIN_BLOCK,
    Code,
    Terms,
    TftpError,
    build_error,
    negotiate,
    parse_answer,
    parse_request,
)
from pxe.tftp_transfer import Datagrams, Phase, Transfer

_AT_ONCE = 256  # answers that are read at a stretch
UDP_SEGMENT = 103  # linux/udp.h: what is sent is cut into datagrams of so many bytes
_CANNOT_CUT = (errno.EIO, errno.EINVAL, errno.EMSGSIZE)
"""A card that makes no checksums, or a path that takes smaller packets."""
_TICK_S = 0.25
_TELL_S = 20.0
_MAX_TRANSFERS = 2048
_MAX_FROM_ONE = 8


class Gate(Protocol):
    """Who may fetch, and who wants to know about it."""

    def may_come(self, ip: str) -> bool:
        """Whether this may be a client of ours that is not known yet: it gets no answer, and asks
        again."""

    def may_fetch(self, ip: str) -> str:
        """Why this client may not, or "" if it may."""

    def own(self, ip: str, name: str) -> bytes | mmap.mmap | None:
        """What only this client may fetch, None if there is no such file. Raises Refused."""

    def began(self, ip: str, name: str) -> None:
        """A transfer began."""

    def going(self, ip: str, name: str, sent: int, size: int) -> None:
        """A long transfer gets on: so many bytes of it are there."""

    def broke(self, ip: str, name: str, sent: int, size: int, why: str) -> None:
        """The client had got so many bytes, and takes no more: why."""

    def other(self, ip: str, name: str) -> None:
        """A client that may fetch asks for a file that is not there."""

    def ended(self, ip: str, name: str, size: int, seconds: float) -> None:
        """A transfer ended and the client has all of it."""


@dataclass(slots=True, eq=False)
class _Live:
    peer: tuple[str, int]
    request: bytes
    name: str
    size: int
    sock: socket.socket
    transfer: Transfer
    told: float
    at_once: bool  # the kernel takes a window in one call
    whole: bool = False  # and that was told


class TftpServer:
    """Serves the names of an explicit table, and what the gate has for who asks: no path is ever
    made of a packet's words."""

    def __init__(
        self,
        address: tuple[str, int],
        files: Mapping[str, bytes],
        gate: Gate,
        counters: Counter[str],
        clock: Callable[[], float],
        interface: str = "",
    ) -> None:
        """At an IPv4 address, or at all IPv6 addresses ("::") of an `interface`."""
        self.address = address
        self._options: list[tuple[int, int, int | bytes]] = []
        if interface:
            self._options = [
                (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"),
                (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),
            ]
        self.files = files
        self._gate = gate
        self._counters = counters
        self._clock = clock
        self._server = DatagramServer(
            self._request
        )  # an error while reading is an ICMP answer about a packet of ours: let it be
        self.transfers: dict[tuple[str, int], _Live] = {}
        """Those under way, by the client's address and port."""
        self.by_socket: dict[int, _Live] = {}
        """The same by the descriptors of their sockets."""
        self._epoll: select.epoll | None = None
        self._heard = bytearray(1024)
        # Who has acknowledged something is there, and stays; a request alone may come from anybody
        # in the name of another.
        self._slots: SlotPool[_Live] = SlotPool(
            _MAX_FROM_ONE, _MAX_TRANSFERS, lambda live: not live.transfer.fresh
        )
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Starts to listen. Raises OperationFailed."""
        try:
            self._server.open(self.address, *self._options)
        except OSError as error:
            raise OperationFailed(
                f"cannot listen for TFTP on {self.address[0]} port {self.address[1]}: "
                f"{error.strerror}",
                hint="it needs root, and no other TFTP server on this address",
            ) from error
        self._epoll = select.epoll()
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._ready, self._epoll)

    def close(self) -> None:
        """Stops all transfers and listens no more."""
        for live in list(self.transfers.values()):
            self._end(live)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._server.close()
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def goes_on(self, ip: str, name: str = "") -> None:
        """The client at an address asks for what comes after, in the file of this name if any. So
        it has what was sent to it, also if the last acknowledgement was lost (RFC 1350, section 6):
        firmware closes its network card as soon as it has said that."""
        for live in self._slots.held_by(ip):
            if live.transfer.out and live.name != name:
                self._whole(live)

    def _whole(self, live: _Live) -> None:
        if not live.whole:
            live.whole = True
            self._gate.ended(
                live.peer[0], live.name, live.size, self._clock() - live.transfer.started
            )

    def _refuse(self, peer: tuple[str, int], code: Code, text: str) -> None:
        if self._server.socket is not None:
            try:
                self._server.socket.sendto(build_error(code, text), peer)
            except OSError:
                self._counters["tftp.send-failed"] += 1

    def _request(self, data: bytes, peer: tuple[str, int]) -> None:
        self._counters["tftp.requests"] += 1
        if self._is_repeated(data, peer):
            return
        try:
            request = parse_request(data)
        except TftpError as error:
            self._counters["tftp.malformed"] += 1
            self._refuse(peer, error.code, error.message)
            return
        if self._gate.may_come(peer[0]):
            self._counters["tftp.not-told"] += 1
            return
        # Some firmware asks for "/snponly.efi". The rest of the name must be in the table as it is:
        # no path is resolved.
        name = request.name.removeprefix("/")
        content, why = self._content(peer[0], name)
        if content is None or why:
            self._counters["tftp.refused"] += 1
            if not why:
                self._gate.other(peer[0], name)
            self._refuse(peer, Code.ACCESS if why else Code.NOT_FOUND, why or "no such file")
            return
        self.goes_on(peer[0], name)
        self._start(data, peer, name, content, negotiate(request.options, len(content)))

    def _is_repeated(self, data: bytes, peer: tuple[str, int]) -> bool:
        """Whether a request came before, and its transfer has just begun: that begins once more.
        Any other transfer to this port is over."""
        live = self.transfers.get(peer)
        if live is None:
            return False
        if live.request == data and live.transfer.fresh:
            # our first packet was lost, or theirs came twice
            self._send(live, live.transfer.begin(self._clock()))
            return True
        if live.transfer.out and live.request != data:
            live.transfer.phase = Phase.DONE
        self._end(live)
        return False

    def _content(self, client: str, name: str) -> tuple[bytes | mmap.mmap | None, str]:
        """What a client gets by a name, None for nothing; and why it may have nothing."""
        content: bytes | mmap.mmap | None = self.files.get(name)
        why = self._gate.may_fetch(client)
        if content is not None or why:
            return content, why
        try:
            return self._gate.own(client, name), ""
        except Refused as refusal:
            return None, refusal.message

    def _start(
        self,
        data: bytes,
        peer: tuple[str, int],
        name: str,
        content: bytes | mmap.mmap,
        terms: Terms,
    ) -> None:
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            for each in self._options:
                sock.setsockopt(*each)
            sock.bind((self.address[0], 0))
            sock.connect(peer)
        except OSError:
            sock.close()
            self._counters["tftp.send-failed"] += 1
            return
        now = self._clock()
        at_once = terms.window == 1 or (terms.block >= PLAIN_BLOCK and _cuts(sock, terms.block + 4))
        live = self.transfers[peer] = _Live(
            peer, data, name, len(content), sock, Transfer(content, terms, now), now, at_once
        )
        ends = self._slots.add(peer[0], live)
        if ends is not None:
            self._counters["tftp.too-many"] += 1
            self._end(ends)
        if ends is live:
            return  # the client asks again
        self.by_socket[sock.fileno()] = live
        if self._epoll is not None:
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self.tick)
        self._gate.began(peer[0], name)
        self._send(live, live.transfer.begin(now))

    def _send(self, live: _Live, datagrams: Datagrams) -> None:
        for piece in (datagrams,) if live.at_once else live.transfer.split(datagrams):
            try:
                live.sock.send(piece)
            except BlockingIOError:
                return  # the buffer is full; what is missing is sent again on time-out
            except ConnectionRefusedError:
                self._client_restarted(live)
                return
            except OSError as error:  # no way there now, as while a cable is out: the same
                if not live.at_once or error.errno not in _CANNOT_CUT:
                    self._counters["tftp.send-failed"] += 1
                    return
                live.at_once = False
                _cuts(live.sock, 0)
                self._send(live, datagrams)

    def _client_restarted(self, live: _Live) -> None:
        """The client's machine answers, and has no such port any more: it has started anew, or its
        firmware has given up.

        Or it has all, and took what we sent once more for a stranger's: then its last answer is
        here already, behind that error.
        """
        try:
            op, number = parse_answer(self._heard, live.sock.recv_into(self._heard))
            live.transfer.answer(op, number, self._clock())
        except (OSError, TftpError):
            pass  # it is as it was
        if live.transfer.phase is Phase.RUNNING:
            live.transfer.phase = Phase.GONE
        self._end(live)

    def _ready(self, epoll: select.epoll) -> None:
        left = _AT_ONCE
        live_by = self.by_socket.get
        while left > 0 and not epoll.closed and (ready := epoll.poll(0, left)):
            left -= len(ready)
            now = self._clock()
            for number, _ in ready:
                live = live_by(number)
                if live is not None:
                    self._answered(live, now)

    def _answered(self, live: _Live, now: float) -> None:
        """Reads one answer: a client waits for ours, so there is rarely another."""
        try:
            op, number = parse_answer(self._heard, live.sock.recv_into(self._heard))
        except BlockingIOError:
            return
        except TftpError:
            self._counters["tftp.malformed"] += 1
            return
        except ConnectionRefusedError:
            self._client_restarted(live)
            return
        except OSError:
            return  # about a packet that found no way: what is missing is sent again
        if datagrams := live.transfer.answer(op, number, now):
            self._send(live, datagrams)
        elif live.transfer.phase is not Phase.RUNNING:
            self._end(live)
            return
        if now - live.told >= _TELL_S:
            live.told = now
            self._gate.going(live.peer[0], live.name, live.transfer.sent, live.size)
            if self._gate.may_fetch(live.peer[0]):  # not any more
                self._end(live)

    def tick(self) -> None:
        """Looks through all transfers for silent clients; runs only while there are transfers."""
        self._timer = None
        now = self._clock()
        for live in [live for live in self.transfers.values() if live.transfer.due(now)]:
            if datagrams := live.transfer.timeout(now):
                self._send(live, datagrams)
            if live.transfer.phase is not Phase.RUNNING:
                self._end(live)
        if self.transfers:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self.tick)

    def _end(self, live: _Live) -> None:
        if self.transfers.get(live.peer) is live:
            del self.transfers[live.peer]
        self._slots.remove(live.peer[0], live)
        if live.sock.fileno() < 0:
            return
        self.by_socket.pop(live.sock.fileno(), None)  # it may have had no place at all
        live.sock.close()  # which takes it out of the epoll
        phase = live.transfer.phase
        self._counters[
            "tftp.broken" if phase is Phase.RUNNING else f"tftp.{phase.name.lower()}"
        ] += 1
        if phase is Phase.DONE or (phase is Phase.GONE and live.transfer.out):
            self._whole(live)
        elif phase in (Phase.SILENT, Phase.GONE) and not (live.transfer.fresh or live.whole):
            self._gate.broke(live.peer[0], live.name, live.transfer.sent, live.size, phase.value)


def _cuts(sock: socket.socket, size: int) -> bool:
    """Whether the kernel cuts what is sent into datagrams of this size from now on; 0: of none."""
    try:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
    except OSError:
        return False
    return True
