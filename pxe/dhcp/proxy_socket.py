"""The socket of proxyDHCP: port 4011, where firmware asks that has its address from another
server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe.dhcp.decision import Decision
from pxe.dhcp.proxydhcp import PORT
from pxe.notes import Recorder
from pxe.packets import dhcp
from pxe.settings import Settings

_RECEIVE_BYTES = 4097
_CHADDR = slice(28, 34)


class ProxySocket:
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
        self._settings = settings
        self._decide = decide
        self._known = known
        self._recorder = recorder
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
        sock = self._server.socket
        send = (
            None
            if decision.reply is None or sock is None
            else partial(sock.sendto, dhcp.build(decision.reply), source)
        )
        self._recorder.answered(decision.notes, send, "DHCP", self._settings.interface)
