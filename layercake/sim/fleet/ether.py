"""The datagrams of a simulated fleet: one UDP socket, each node with its own address, and what is
lost or late."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Mapping

from layercake.kraken.errors import WireError
from layercake.kraken.wire import peek
from layercake.sim.fleet.clockwork import Clockwork
from layercake.sim.fleet.faults import Faults
from layercake.sim.fleet.machine import Machine

_AT_ONCE = 4096
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")
_SO_RCVBUFFORCE = 33
_ROOM = 16 << 20


class Ether:
    """Sends and takes the fleet's datagrams, to each machine's head; `cut` says whether nothing
    gets through to a machine; `moved` is told of the address of a head that acts, as far as one
    did not before; `own`: each node sends from its own address, which must be one of this network
    namespace's."""

    def __init__(
        self,
        machines: Mapping[bytes, Machine],
        faults: Faults,
        clockwork: Clockwork,
        cut: Callable[[Machine], bool],
        moved: Callable[[str], None],
        *,
        own: bool = True,
    ) -> None:
        self._machines = machines
        self._faults = faults
        self._clockwork = clockwork
        self._cut = cut
        self._moved = moved
        self._own = own
        self._socket = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        with contextlib.suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
        self._heads: tuple[str, ...] = ()
        self._port = 0
        self.lost = 0

    def open(self, heads: tuple[str, ...], port: int) -> None:
        """Begins: the heads have these addresses, and this port."""
        self._heads = heads
        self._port = port
        self._socket.bind(("", 0))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        """Ends."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def send(self, machine: Machine, data: bytes, head: str = "") -> None:
        """A machine sends a datagram to the head that it knows, or to this one."""
        machine.sent += 1
        if self._cut(machine):
            return
        if self._faults.clean:
            self._out(machine, data, head)
            return
        fate = self._faults.fate(machine.identity.name, "up", machine.sent)
        self.lost += not fate
        for late in fate:
            self._clockwork.later(late, lambda: self._out(machine, data, head))

    def _out(self, machine: Machine, data: bytes, head: str) -> None:
        """To one head, or to all if the machine searches for the one that acts."""
        agent = machine.agent
        heads: tuple[str, ...] = (head or machine.head or self._heads[0],)
        if not head and agent is not None and agent.searching:
            heads = self._heads
        for one in heads:
            self._send_to(machine, data, one)

    def _send_to(self, machine: Machine, data: bytes, head: str) -> None:
        datagrams = []
        if self._own:
            datagrams = [
                (
                    socket.IPPROTO_IP,
                    _IP_PKTINFO,
                    _PKTINFO.pack(0, socket.inet_aton(machine.identity.ip), bytes(4)),
                )
            ]
        try:
            self._socket.sendmsg((data,), datagrams, 0, (head, self._port))
        except OSError:  # no room, or no way there: lost, as for the agent of a real node
            self.lost += 1

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, source = self._socket.recvfrom(2048)
            except (BlockingIOError, ConnectionError):
                return
            with contextlib.suppress(WireError, KeyError):
                self._deliver(self._machines[peek(data)[0]], data, source[0])

    def _deliver(self, machine: Machine, data: bytes, source: str) -> None:
        machine.heard += 1
        if self._cut(machine):
            return
        if self._faults.clean:
            self._in(machine, data, source)
            return
        fate = self._faults.fate(machine.identity.name, "down", machine.heard)
        self.lost += not fate
        for late in fate:
            self._clockwork.later(late, lambda: self._in(machine, data, source))

    def _in(self, machine: Machine, data: bytes, source: str) -> None:
        if machine.agent is not None:
            with contextlib.suppress(WireError):  # of an earlier life, or overtaken
                machine.agent.datagram_received(data, source)
                if source != machine.head:
                    machine.head = source
                    self._moved(source)
