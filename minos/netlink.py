"""Just enough rtnetlink (rtnetlink(7)) to bring an interface up with an address and routes; all
else is in minos.agent.network.

In-process, because each `ip` command costs a fork and an exec, which a boot on an emulated
processor feels. The messages are built by pure functions; `Netlink` sends them and checks the
acknowledgements.
"""

from __future__ import annotations

import os
import socket
import struct

from layercake.base.packets.netlink import NLMSG_DONE, NLMSG_ERROR, attribute, messages
from layercake.kraken.errors import OperationFailed

RTM_NEWLINK = 16
RTM_NEWADDR = 20
RTM_NEWROUTE = 24
NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_REPLACE = 0x100
NLM_F_CREATE = 0x400
NLM_F_DUMP = 0x300
IFF_UP = 1
IFLA_MTU = 4
RTA_DST = 1
RTA_OIF = 4
RTA_GATEWAY = 5
IFA_ADDRESS = 1
IFA_LOCAL = 2


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """A netlink message with its header."""
    return (
        struct.pack("=IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK | flags, sequence, 0)
        + body
    )


def link_up(index: int, sequence: int) -> bytes:
    """Sets IFF_UP."""
    return message(
        RTM_NEWLINK, 0, sequence, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, IFF_UP, IFF_UP)
    )


def link_mtu(index: int, mtu: int, sequence: int) -> bytes:
    """Sets the size of the largest packet."""
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + attribute(
        IFLA_MTU, struct.pack("=I", mtu)
    )
    return message(RTM_NEWLINK, 0, sequence, body)


def new_address(index: int, family: int, packed: bytes, prefix: int, sequence: int) -> bytes:
    """Adds an address; IPv6 duplicate address detection is left out (flag NODAD), the head has
    assigned the address."""
    flags = 0x02 if family == socket.AF_INET6 else 0
    body = (
        struct.pack("=BBBBI", family, prefix, flags, 0, index)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed)
    )
    return message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, sequence, body)


def default_route(index: int, family: int, gateway: bytes, sequence: int) -> bytes:
    """A default route."""
    return route(index, family, b"", 0, gateway, sequence)


def route(
    index: int, family: int, target: bytes, prefix: int, gateway: bytes, sequence: int
) -> bytes:
    """A route (table main, protocol boot, scope universe, unicast)."""
    body = struct.pack("=BBBBBBBBI", family, prefix, 0, 0, 254, 3, 0, 1, 0)
    if prefix:
        body += attribute(RTA_DST, target)
    body += attribute(RTA_GATEWAY, gateway) + attribute(RTA_OIF, struct.pack("=i", index))
    return message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sequence, body)


def error_of(reply: bytes, sequence: int) -> int | None:
    """The errno in an acknowledgement (0 is success), None if the reply answers another request."""
    if len(reply) < 20:
        return None
    _, kind, _, got, _ = struct.unpack_from("=IHHII", reply)
    if kind != NLMSG_ERROR or got != sequence:
        return None
    (code,) = struct.unpack_from("=i", reply, 16)
    return -int(code)


class Netlink:
    """A netlink socket; one request at a time."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket.settimeout(5)
        self._sequence = 0

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def next(self) -> int:
        """The next sequence number."""
        self._sequence += 1
        return self._sequence

    def request(self, data: bytes, what: str) -> None:
        """Sends one message and waits for its acknowledgement. Raises OperationFailed."""
        self._socket.send(data)
        while (code := error_of(self._socket.recv(65536), self._sequence)) is None:
            pass
        if code:
            raise OperationFailed(f"cannot {what}: {os.strerror(code)}")

    def dump(self, kind: int, body: bytes, what: str) -> list[bytes]:
        """The bodies of all things of a kind: what RTM_GETLINK and its like answer. Raises
        OperationFailed."""
        number = self.next()
        dumped = list[bytes]()
        self._socket.send(message(kind, NLM_F_DUMP, number, body))
        while True:
            for answer, sequence, its in messages(self._socket.recv(1 << 18)):
                if sequence != number:
                    continue
                if answer == NLMSG_DONE:
                    return dumped
                if answer == NLMSG_ERROR:
                    raise OperationFailed(
                        f"cannot {what}: {os.strerror(-struct.unpack_from('=i', its)[0])}"
                    )
                dumped.append(its)
