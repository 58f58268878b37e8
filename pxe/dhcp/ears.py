"""The sockets beside those of pxe.dhcp.server: port 4011, where firmware asks that has its address
of another server, and a packet socket that hears what other servers say to all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from layercake.base.datagrams import DatagramServer
from layercake.base.packets import bpf
from layercake.kraken.errors import OperationFailed
from pxe.dhcp.beside import PORT
from pxe.dhcp.decision import Decision
from pxe.dhcp.others import Overheard, overheard
from pxe.notes import Note, Recorder
from pxe.packets import dhcp
from pxe.settings import Settings

_RECEIVE_BYTES = 4097
_CHADDR = slice(28, 34)
_IPV4 = 0x0800
_AT_ONCE = 64


class BootPort:
    """Port 4011 of the head. Receives, has `decide` decide, answers to where a packet came from.
    Nothing that it holds can raise out of it; of who is not `known` by the MAC address nothing is
    read."""

    def __init__(
        self,
        settings: Settings,
        decide: Callable[[dhcp.DhcpPacket], Decision],
        recorder: Recorder,
        known: Callable[[bytes], bool],
    ) -> None:
        self._settings, self._decide, self._known, self._recorder = (
            settings,
            decide,
            known,
            recorder,
        )
        self._server = DatagramServer(
            self._handle,
            size=_RECEIVE_BYTES,
            failed=lambda error: recorder.failed("receive", "DHCP", settings.interface, error),
        )

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        address = self._settings.address
        try:
            self._server.open((address, PORT))
        except OSError as error:
            raise OperationFailed(
                f"cannot listen for proxyDHCP on {address}, UDP port {PORT}: {error.strerror}",
                hint="no other proxyDHCP or PXE server can be on this machine",
            ) from error

    def close(self) -> None:
        """Stops."""
        self._server.close()

    def _handle(self, data: bytes, source: Any) -> None:
        counters = self._recorder.counters
        counters["dhcp.received-4011"] += 1
        if not self._known(data[_CHADDR]):
            return
        try:
            decision = self._decide(dhcp.parse(data))
        except dhcp.DhcpError:
            counters["dhcp.malformed"] += 1
            return
        counters[f"dhcp.{decision.outcome.value}"] += 1
        made = self._server.socket
        send = (
            None
            if decision.reply is None or made is None
            else partial(made.sendto, dhcp.build(decision.reply), source)
        )
        self._recorder.answered(decision.notes, send, "DHCP", self._settings.interface)


class Ear:
    """Hears the DHCP answers that other machines broadcast on the interface. `told` makes notes of
    one."""

    def __init__(
        self,
        settings: Settings,
        interface: str,
        told: Callable[[Overheard], tuple[Note, ...]],
        recorder: Recorder,
    ) -> None:
        self._port, self._interface, self._told, self._recorder = (
            settings.dhcp_port + 1,
            interface,
            told,
            recorder,
        )
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Starts to listen. Raises OperationFailed."""
        interface = self._interface
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            bpf.attach(made, bpf.udp_to(self._port))
            made.bind(
                (interface, _IPV4)
            )  # a socket of one protocol is not given what this machine sends (packet(7))
        except OSError as error:
            made.close()
            raise OperationFailed(
                f"cannot listen for other DHCP servers on {interface}: {error.strerror}",
                hint="it needs root and the interface up",
            ) from error
        self._socket = made
        asyncio.get_running_loop().add_reader(made.fileno(), self._read)

    def close(self) -> None:
        """Stops."""
        made, self._socket = self._socket, None
        if made is not None:
            asyncio.get_running_loop().remove_reader(made.fileno())
            made.close()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                heard = overheard(self._socket.recv(_RECEIVE_BYTES))
            except (BlockingIOError, InterruptedError):
                return
            except dhcp.DhcpError:
                # another server's trouble, or nobody's: what we are sent is counted elsewhere
                continue
            except OSError as error:
                self._recorder.failed("receive", "DHCP", self._interface, error)
                return
            self._recorder.answered(
                self._told(heard) if heard is not None else (), None, "DHCP", self._interface
            )
