"""The packet socket that receives what other DHCP servers broadcast (foreign_servers.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from layercake.base.packets import bpf
from layercake.kraken.errors import OperationFailed
from pxe.dhcp.foreign_servers import ForeignAnswer, parse_answer_frame
from pxe.notes import Note, Recorder
from pxe.packets import dhcp
from pxe.settings import Settings

_RECEIVE_BYTES = 4097
_IPV4 = 0x0800
_AT_ONCE = 64


class AnswerSniffer:
    """Receives the DHCP answers that other machines broadcast on the interface. `note` makes notes
    of one."""

    def __init__(
        self,
        settings: Settings,
        interface: str,
        note: Callable[[ForeignAnswer], tuple[Note, ...]],
        recorder: Recorder,
    ) -> None:
        self._port = settings.dhcp_port + 1
        self._interface = interface
        self._note = note
        self._recorder = recorder
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Starts to listen. Raises OperationFailed."""
        interface = self._interface
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            bpf.attach(sock, bpf.udp_to(self._port))
            sock.bind(
                (interface, _IPV4)
            )  # a socket of one protocol is not given what this machine sends (packet(7))
        except OSError as error:
            sock.close()
            raise OperationFailed(
                f"cannot listen for other DHCP servers on {interface}: {error.strerror}",
                hint="it needs root and the interface up",
            ) from error
        self._socket = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def close(self) -> None:
        """Stops."""
        sock = self._socket
        self._socket = None
        if sock is not None:
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                answer = parse_answer_frame(self._socket.recv(_RECEIVE_BYTES))
            except (BlockingIOError, InterruptedError):
                return
            except dhcp.DhcpError:
                # another server's trouble, or nobody's: what we are sent is counted elsewhere
                continue
            except OSError as error:
                self._recorder.failed("receive", "DHCP", self._interface, error)
                return
            self._recorder.answered(
                self._note(answer) if answer is not None else (), None, "DHCP", self._interface
            )
