"""The DHCPv6 socket: RFC 8415. Nothing that a packet holds can raise out of it."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe.dhcp.outcome import notes_on_unreadable
from pxe.ipv6.decision import Network, decide, mac_of_source
from pxe.nodes import Nodes
from pxe.notes import Recorder
from pxe.packets import dhcp6 as dhcp
from pxe.settings import Settings
from pxe.windows import Windows

PORT = 547
_ALL_SERVERS = "ff02::1:2"
_DUID_LL = b"\x00\x03\x00\x01"
_LOOK_EVERY_S = 10.0
_ADDRESSES = Path("/proc/thread-self/net/if_inet6")


def own_address(interface: str, prefix: str) -> str:
    """The interface's address in a network, "" if it has none."""
    network = ipaddress.IPv6Network(prefix)
    for line in _ADDRESSES.read_text().splitlines():
        fields = line.split()
        address = ipaddress.IPv6Address(bytes.fromhex(fields[0]))
        if fields[-1] == interface and address in network:
            return str(address)
    return ""


class Dhcp6Server:
    """Receives on an interface, has `decide` decide, answers: for the networks of IPv6 that the
    head is in there, and on the first interface for `settings.ra_prefix`."""

    def __init__(
        self,
        settings: Settings,
        interface: str,
        nodes: Nodes,
        windows: Windows,
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        self._interface = interface
        self._lease = settings.lease_s
        self._prefix = (settings.ra_prefix or "") if interface == settings.interface else ""
        self._here = tuple(
            own.network
            for own in settings.heads
            if own.interface == interface and own.network.version == 6
        )
        self._nodes = nodes
        self._windows = windows
        self._recorder = recorder
        self._clock = clock
        self._duid = b""
        self._address = ""
        self._looked = float("-inf")
        self._server = DatagramServer(
            self._handle,
            failed=lambda error: recorder.failed("receive", "DHCPv6", interface, error),
        )

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        interface = self._interface
        try:
            index = socket.if_nametoindex(interface)
            group = socket.inet_pton(socket.AF_INET6, _ALL_SERVERS) + struct.pack("=I", index)
            self._server.open(
                ("::", PORT),
                (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"),
                (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),
                (socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group),
            )
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind((interface, 0))
                self._duid = _DUID_LL + raw.getsockname()[4]
        except OSError as error:
            self.close()
            raise OperationFailed(
                f"cannot listen for DHCPv6 on interface {interface}: {error.strerror}",
                hint="it needs root, and no other DHCPv6 server on this machine",
            ) from error

    def close(self) -> None:
        """Stops."""
        self._server.close()

    def _handle(self, data: bytes, source: tuple[str, int, int, int]) -> None:
        counters = self._recorder.counters
        counters["dhcpv6.received"] += 1
        now = self._clock()
        if self._prefix and now >= self._looked + _LOOK_EVERY_S:
            self._address = own_address(self._interface, self._prefix)
            self._looked = now
        net = Network(self._duid, self._address, self._prefix, self._lease, self._here)
        try:
            decision = decide(dhcp.parse(data), source[0], self._nodes, self._windows, net, now)
        except dhcp.Dhcp6Error as error:
            counters["dhcpv6.malformed"] += 1
            mac = mac_of_source(source[0]) or b""
            for note in notes_on_unreadable(mac, str(error), self._nodes):
                self._recorder.note(note)
            return
        counters[f"dhcpv6.{decision.outcome.value}"] += 1
        udp = self._server.socket
        send = (
            partial(udp.sendto, decision.reply, source)
            if decision.reply and udp is not None
            else None
        )
        self._recorder.answered(decision.notes, send, "DHCPv6", self._interface)
