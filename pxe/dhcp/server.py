"""The DHCP sockets. One UDP socket bound to the interface, one packet socket for clients without an address."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from functools import partial

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe import events
from pxe.dhcp import packet as dhcp
from pxe.dhcp.decision import Decision, Outcome, Way
from pxe.dhcp.frame import build_frame
from pxe.notes import Recorder
from pxe.settings import Settings, packed

_RECEIVE_BYTES = 4097  # one more than the codec takes, so that a longer packet is seen to be too long
_CHADDR = slice(28, 34)
"""Where a packet has the client's MAC address (RFC 2131 section 2)."""
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")


class DhcpServer:
    """Receives, has `decide` decide, sends. Nothing that a packet holds can raise out of it."""

    def __init__(self, settings: Settings, decide: Callable[[dhcp.DhcpPacket], Decision], recorder: Recorder,
                 known: Callable[[bytes], bool]) -> None:
        self._settings = settings
        self._decide, self._known = decide, known
        self._recorder = recorder
        self._address = packed(settings.address)
        self._server = DatagramServer(lambda data, source: self._handle(data), size=_RECEIVE_BYTES,
                                      failed=lambda error: recorder.failed(
                                          "receive", "DHCP", settings.interface, error))
        self._raw: socket.socket | None = None
        self._mac = bytes(6)

    def open(self) -> None:
        """Opens both sockets and starts to answer. Raises OperationFailed."""
        interface, port = self._settings.interface, self._settings.dhcp_port
        try:
            self._server.open(
                ("", port), (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"),
                (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1), (socket.SOL_SOCKET, socket.SO_BROADCAST, 1))
            raw = self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            raw.bind((interface, 0))
            self._mac = raw.getsockname()[4]
        except OSError as error:
            self.close()
            raise OperationFailed(f"cannot listen for DHCP on interface {interface}, UDP port {port}: {error.strerror}",
                                  hint="it needs root, the interface up, and no other DHCP server on this machine") from error

    def close(self) -> None:
        """Closes both sockets."""
        self._server.close()
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def _handle(self, data: bytes) -> None:
        counters = self._recorder.counters
        counters["dhcp.received"] += 1
        mac, text = data[_CHADDR], data[_CHADDR].hex(":")
        if not self._known(mac) and self._recorder.passes_over(events.UNKNOWN_MAC, text, f"{text} asks for an address"):
            counters[f"dhcp.{Outcome.UNKNOWN_MAC.value}"] += 1  # a flood of strangers costs no parsing
            return
        try:
            decision = self._decide(dhcp.parse(data))
        except dhcp.DhcpError:
            counters["dhcp.malformed"] += 1
            return
        counters[f"dhcp.{decision.outcome.value}"] += 1
        send = None if decision.reply is None else partial(self._send, decision, decision.reply)
        self._recorder.answered(decision.notes, send, "DHCP", self._settings.interface)

    def _send(self, decision: Decision, reply: dhcp.DhcpPacket) -> None:
        port = self._settings.dhcp_port
        payload = dhcp.build(reply)
        if decision.way is Way.FRAME and self._raw is not None:
            self._raw.send(build_frame(self._mac, reply.mac, (self._address, port), (decision.address, port + 1), payload))
        elif self._server.socket is not None:
            target = (socket.inet_ntoa(decision.address), port if decision.way is Way.RELAY else port + 1)
            source = (socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO.pack(0, self._address, bytes(4)))
            self._server.socket.sendmsg([payload], [source], 0, target)
