"""The DHCPv6 socket: RFC 8415. Nothing that a packet holds can raise out of it."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe import events
from pxe.nodes import Nodes
from pxe.notes import Note, Recorder
from pxe.settings import Settings
from pxe.six import packet as dhcp
from pxe.six.decision import Network, decide
from pxe.windows import Step, Windows

PORT = 547
_ALL_SERVERS = "ff02::1:2"
_DUID_LL = b"\x00\x03\x00\x01"
_LOOK_EVERY_S = 10.0
_ADDRESSES = Path("/proc/thread-self/net/if_inet6")


def own_address(interface: str, prefix: str) -> str:
    """The interface's address in a network, "" if it has none."""
    network = ipaddress.IPv6Network(prefix)
    for line in _ADDRESSES.read_text().splitlines():
        words = line.split()
        address = ipaddress.IPv6Address(bytes.fromhex(words[0]))
        if words[-1] == interface and address in network:
            return str(address)
    return ""


class Dhcp6Server:
    """Receives, has `decide` decide, answers. For `settings.ra_prefix` only."""

    def __init__(self, settings: Settings, nodes: Nodes, windows: Windows, recorder: Recorder, clock: Callable[[], float]) -> None:
        if settings.ra_prefix is None:
            raise ValueError("no ra_prefix is set")
        self._settings, self._prefix = settings, settings.ra_prefix
        self._nodes, self._windows = nodes, windows
        self._recorder = recorder
        self._clock = clock
        self._duid, self._address, self._looked = b"", "", float("-inf")
        self._server = DatagramServer(self._handle, failed=lambda error: self._failed("receive", error))

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        interface = self._settings.interface
        try:
            index = socket.if_nametoindex(interface)
            group = socket.inet_pton(socket.AF_INET6, _ALL_SERVERS) + struct.pack("=I", index)
            self._server.open(
                ("::", PORT), (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"),
                (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1), (socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group))
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind((interface, 0))
                self._duid = _DUID_LL + raw.getsockname()[4]
        except OSError as error:
            self.close()
            raise OperationFailed(f"cannot listen for DHCPv6 on interface {interface}: {error.strerror}",
                                  hint="it needs root, and no other DHCPv6 server on this machine") from error

    def close(self) -> None:
        """Stops."""
        self._server.close()

    def _handle(self, data: bytes, source: tuple[str, int, int, int]) -> None:
        counters = self._recorder.counters
        counters["dhcp6.received"] += 1
        now = self._clock()
        if now >= self._looked + _LOOK_EVERY_S:
            self._address, self._looked = own_address(self._settings.interface, self._prefix), now
        net = Network(self._duid, self._address, self._prefix, self._settings.lease_s)
        try:
            decision = decide(dhcp.parse(data), source[0], self._nodes, self._windows, net, now)
        except dhcp.Dhcp6Error:
            counters["dhcp6.malformed"] += 1
            return
        counters[f"dhcp6.{decision.outcome.value}"] += 1
        sent = True
        if decision.reply and self._server.socket is not None:
            try:
                self._server.socket.sendto(decision.reply, source)
            except OSError as error:
                self._failed("send", error)
                sent = False
        for note in decision.notes:
            if sent or note.step is not Step.OFFER:
                self._recorder.note(note)

    def _failed(self, what: str, error: OSError) -> None:
        self._recorder.counters[f"dhcp6.{what}-failed"] += 1
        kind = events.DHCP_SEND_FAILED if what == "send" else events.DHCP_RECEIVE_FAILED
        text = f"cannot {what} DHCPv6 on {self._settings.interface}: {error.strerror}"
        self._recorder.note(Note("", kind, text, about=("6", error.errno), every=60.0))
