"""The DHCP sockets. One UDP socket bound to the interface, one packet socket for clients without an
address."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe import events
from pxe.dhcp.answers import CHADDR, Answer, Answers
from pxe.dhcp.decision import Outcome, Way
from pxe.dhcp.frame import build_frame
from pxe.dhcp.queue import Queue
from pxe.notes import Recorder
from pxe.packets import dhcp
from pxe.settings import Settings, packed

log = logging.getLogger("pxe.dhcp")

_RECEIVE_BYTES = (
    4097  # one more than the codec takes, so that a longer packet is seen to be too long
)
_AT_ONCE = 64  # packets that are answered at a stretch
_READ = 256  # packets that are read at a stretch
_TURNS = 16  # how often it is looked for more
_IP_PKTINFO = 8
_HTYPE = slice(1, 2)
_INFINIBAND = bytes((dhcp.INFINIBAND,))
_PKTINFO = struct.Struct("=i4s4s")


class DhcpServer:
    """Receives on an interface, has `answers` say what is answered, sends. Nothing that a packet
    holds can raise out of it."""

    def __init__(
        self,
        settings: Settings,
        interface: str,
        answers: Answers,
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        self._port = settings.dhcp_port
        self._interface = interface
        self.answers = answers
        self._clock = clock
        self._recorder = recorder
        self._counters = recorder.counters
        self._queue = Queue(recorder.counters)
        self._sources = {
            packed(own.address): (
                (socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO.pack(0, packed(own.address), bytes(4))),
            )
            for own in settings.heads
            if own.network.version == 4
        }
        self._server = DatagramServer(
            self.receive,
            size=_RECEIVE_BYTES,
            turn=self.turn,
            failed=lambda error: recorder.failed("receive", "DHCP", interface, error),
        )
        self._again: asyncio.Handle | None = None
        self._raw: socket.socket | None = None
        self._mac = bytes(6)

    def open(self) -> None:
        """Opens both sockets and starts to answer. Raises OperationFailed."""
        interface = self._interface
        port = self._port
        try:
            self._server.open(
                ("", port),
                (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"),
                (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
                (socket.SOL_SOCKET, socket.SO_BROADCAST, 1),
            )
            raw = self._raw = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0
            )
            raw.bind((interface, 0))
            self._mac = raw.getsockname()[4]
        except OSError as error:
            self.close()
            raise OperationFailed(
                f"cannot listen for DHCP on interface {interface}, UDP port {port}: "
                f"{error.strerror}",
                hint="it needs root, the interface up, and no other DHCP server on this machine",
            ) from error

    def close(self) -> None:
        """Closes both sockets."""
        self._server.close()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def receive(self, data: bytes, source: object = None) -> None:
        """A packet has come: it waits, unless it is one more of strangers."""
        counters = self._counters
        counters["dhcp.received"] += 1
        # The address of an InfiniBand port is not where others have theirs.
        if data[_HTYPE] != _INFINIBAND and not self.answers.known(data[CHADDR]):
            if not self.answers.knows_all:
                counters[f"dhcp.{Outcome.NOT_TOLD.value}"] += 1
                return
            text = data[CHADDR].hex(":")
            if self._recorder.passes_over(events.UNKNOWN_MAC, text, f"{text} asks for an address"):
                counters[f"dhcp.{Outcome.UNKNOWN_MAC.value}"] += (
                    1  # a flood of strangers costs no parsing
                )
                return
        self._queue.push(data, self._clock())

    def turn(self) -> None:
        """Reads and answers in turns. At first one at a time; while there are more, twice as many
        are read each time, for the newest is answered first. What is left waits until others had
        their turn."""
        if self._again is not None:
            self._again.cancel()
        self._again = None
        left = _AT_ONCE
        size = _READ if self._queue else 1
        for _ in range(_TURNS):
            more = self._server.read(size)
            left -= self.work(left)
            if left <= 0 or not more:
                break
            size = min(2 * size, _READ)
        if self._queue and self._server.socket is not None:
            self._again = asyncio.get_running_loop().call_soon(self.turn)

    def work(self, most: int = _READ) -> int:
        """Answers some of those that wait. Returns how many."""
        now = self._clock()
        for done in range(most):
            data = self._queue.pop(now)
            if data is None:
                return done
            self._answer(data)
        return most

    def _answer(self, data: bytes) -> None:
        counters = self._counters
        try:
            answer = self.answers.to(data)
        except dhcp.DhcpError as error:
            counters["dhcp.malformed"] += 1
            for note in self.answers.malformed(data, error.message):
                self._recorder.note(note)
            return
        counters[answer.counter] += 1
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s", data[CHADDR].hex(":"), answer.outcome.value)
        if answer.way is None or answer.notes:
            send = None if answer.way is None else partial(self._send, answer, answer.way, data)
            self._recorder.answered(answer.notes, send, "DHCP", self._interface)
            return
        try:
            self._send(answer, answer.way, data)
        except OSError as error:
            self._recorder.failed("send", "DHCP", self._interface, error)

    def _send(self, answer: Answer, way: Way, data: bytes) -> None:
        port = self._port
        payload = answer.payload(data)
        if way is Way.FRAME and self._raw is not None:
            self._raw.send(
                build_frame(
                    self._mac,
                    data[CHADDR],
                    (answer.source, port),
                    (answer.address, port + 1),
                    payload,
                )
            )
        elif self._server.socket is not None:
            target = (socket.inet_ntoa(answer.address), port if way is Way.RELAY else port + 1)
            self._server.socket.sendmsg((payload,), self._sources[answer.source], 0, target)
