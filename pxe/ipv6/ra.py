"""IPv6 router advertisements: without one, iPXE waits 14 s after its DHCP ACK. RFC 4861.

We are no router: the router lifetime is 0, so nodes take an address of the prefix and no default
route. Where nodes have reserved addresses of IPv6, they are told to ask for them by DHCPv6.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Sequence

from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.network import AnyNetwork
from pxe import events
from pxe.notes import Note, Recorder
from pxe.settings import packed

SOLICITATION = 133
ADVERTISEMENT = 134
_ALL_NODES = "ff02::1"
_ALL_ROUTERS = "ff02::2"
_HOP_LIMIT = 255  # RFC 4861 section 6.1.1: proof that a packet comes from this link
_HEADER = struct.Struct("!BBHBBHII")
_PREFIX = struct.Struct("!BBBBIII16s")
_VALID_S = 86_400
_PREFERRED_S = 14_400
_ON_LINK = 0x80
_ON_LINK_AUTONOMOUS = 0xC0
_MANAGED = 0xC0
_RDNSS = struct.Struct("!BBHI")
_RDNSS_S = 600
_EVERY_S = 200.0  # MinRtrAdvInterval's default: section 6.2.1
_INITIAL = 3  # the first few come sooner: section 6.2.4
_INITIAL_EVERY_S = 16.0
_RETRY_S = 1.0
# a fresh interface has no usable link-local address for a second or two (duplicate address
# detection)
_FAILURES_TOLD = 10
_ICMP6_FILTER = 1
_DRAIN = 64
_CMSG_BYTES = 128


def build_advertisement(
    prefix: str | None, managed: Sequence[AnyNetwork] = (), servers: Sequence[str] = ()
) -> bytes:
    """The ICMPv6 message; the kernel fills in the checksum. In `prefix`, a /64, who likes makes an
    address for itself; those of `managed` are on the link, and their addresses come by DHCPv6.
    `servers` are DNS servers of IPv6 (RFC 8106)."""
    flags = _MANAGED if managed else 0
    message = _HEADER.pack(ADVERTISEMENT, 0, 0, 64, flags, 0, 0, 0)
    prefixes = [(ipaddress.IPv6Network(prefix), _ON_LINK_AUTONOMOUS)] if prefix is not None else []
    for network, how in (*prefixes, *((network, _ON_LINK) for network in managed)):
        message += _PREFIX.pack(
            3, 4, network.prefixlen, how, _VALID_S, _PREFERRED_S, 0, network.network_address.packed
        )
    if servers:
        message += _RDNSS.pack(25, 1 + 2 * len(servers), 0, _RDNSS_S) + b"".join(
            map(packed, servers)
        )
    return message


def is_solicitation(message: bytes, hop_limit: int) -> bool:
    """Whether to answer: section 6.1.1."""
    return (
        len(message) >= 8
        and message[0] == SOLICITATION
        and message[1] == 0
        and hop_limit == _HOP_LIMIT
    )


class Advertiser:
    """Answers solicitations at once and advertises every few minutes."""

    def __init__(self, interface: str, message: bytes, recorder: Recorder) -> None:
        """`message` is that of `build_advertisement`."""
        self._interface = interface
        self._message = message
        self._recorder = recorder
        self._sock: socket.socket | None = None
        self._index = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rounds = 0
        self._failures = 0

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        try:
            sock = self._sock = socket.socket(
                socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6
            )
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._interface.encode() + b"\0"
            )
            blocked = bytearray(
                b"\xff" * 32
            )  # one bit for each ICMPv6 type, set: not for us (RFC 3542 section 3.2)
            struct.pack_into(
                "=I", blocked, SOLICITATION // 32 * 4, 0xFFFFFFFF & ~(1 << SOLICITATION % 32)
            )
            sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, bytes(blocked))
            index = self._index = socket.if_nametoindex(self._interface)
            for option in (socket.IPV6_MULTICAST_HOPS, socket.IPV6_UNICAST_HOPS):
                sock.setsockopt(socket.IPPROTO_IPV6, option, _HOP_LIMIT)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            group = socket.inet_pton(socket.AF_INET6, _ALL_ROUTERS) + struct.pack("=I", index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        except OSError as error:
            self.close()
            raise OperationFailed(
                f"cannot send router advertisements on {self._interface}: {error.strerror}",
                hint="it needs root and IPv6 on the interface; or take ra_prefix, or its network "
                "of IPv6, out of "
                "the settings",
            ) from error
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)
        self._periodic()

    def close(self) -> None:
        """Stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _periodic(self) -> None:
        self._send()
        delay = _RETRY_S
        if not self._failures:
            self._rounds += 1
            delay = _INITIAL_EVERY_S if self._rounds < _INITIAL else _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(delay, self._periodic)

    def _readable(self) -> None:
        for _ in range(_DRAIN):
            if self._sock is None:
                return
            try:
                data, ancillary, _, source = self._sock.recvmsg(1500, _CMSG_BYTES)
            except OSError:  # drained, or the interface is down
                return
            hops = [
                int.from_bytes(v, "little")
                for level, kind, v in ancillary
                if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_HOPLIMIT
            ]
            self._recorder.counters["ra.received"] += 1
            if is_solicitation(data, hops[0] if hops else 0):
                self._send(source[0])

    def _send(self, target: str = "::") -> None:
        """To everyone, unless the node that asks has an address already (section 6.2.6 allows
        either)."""
        if self._sock is None:
            return
        to = _ALL_NODES if target == "::" else target.partition("%")[0]
        try:
            self._sock.sendto(self._message, (to, 0, 0, self._index))
            self._recorder.counters["ra.sent"] += 1
            self._failures = 0
        # no link-local address yet, or the interface is down: the next round comes soon
        except OSError as error:
            self._recorder.counters["ra.send-failed"] += 1
            self._failures += 1
            if self._failures < _FAILURES_TOLD:
                return
            text = f"cannot send router advertisement on {self._interface}: {error.strerror}"
            self._recorder.note(
                Note("", events.RA_SEND_FAILED, text, about=error.errno, every=60.0)
            )
