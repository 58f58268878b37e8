"""Packet sockets on the nodes' network: what is sent there, and what comes back from others for a
few seconds.

The sockets are our own and scapy reads and writes the packets: scapy's sockets look for an
interface in the network namespace in which it was imported.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layercake.base.packets.bpf import Program, attach

IP = 0x0800
ARP = 0x0806
LLDP = 0x88CC
_PROMISCUOUS = 1
_ADD_MEMBERSHIP = 1
_SOL_PACKET = 263
_ETHERNET = 14
_MOST = 100_000
"""Frames that are kept: a flood ends the wait."""


@dataclass(frozen=True, slots=True)
class ReceivedFrame:
    """A frame that came in, and by which interface."""

    interface: str
    frame: bytes


def _socket(interface: str, protocol: int, program: Program) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        if program:
            attach(sock, program)
        index = socket.if_nametoindex(interface)
        sock.setsockopt(
            _SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("IHH8s", index, _PROMISCUOUS, 0, b"")
        )
        sock.bind((interface, protocol))
    except BaseException:
        sock.close()
        raise
    return sock


def hardware_address(interface: str) -> str:
    """The MAC address of an interface. Raises OSError."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((interface, 0))
        return bytes(sock.getsockname()[4]).hex(":")


def exchange(
    interfaces: Sequence[str],
    protocol: int,
    seconds: float,
    *,
    say: Iterable[bytes] = (),
    again_s: float = 2.0,
    program: Program = (),
) -> list[ReceivedFrame]:
    """Sends frames on the first interface, now and every `again_s`, and returns what others sent to
    any of the interfaces within so many seconds. Our own machine's frames are none of them. Raises
    OSError."""
    frames = list(say)
    received: list[ReceivedFrame] = []
    sockets: dict[int, tuple[str, socket.socket]] = {}
    try:
        for interface in interfaces:
            sock = _socket(interface, protocol, program)
            sockets[sock.fileno()] = (interface, sock)
        first = next(iter(sockets.values()))[1]
        until = time.monotonic() + seconds
        due = time.monotonic() if frames else until
        while (now := time.monotonic()) < until and len(received) < _MOST:
            if now >= due:
                for frame in frames:
                    first.send(frame)
                due = now + again_s
            for number in select.select(list(sockets), [], [], max(0.0, min(due, until) - now))[0]:
                name, sock = sockets[number]
                frame, source = sock.recvfrom(9216)
                if source[2] != socket.PACKET_OUTGOING and len(frame) >= _ETHERNET:
                    received.append(ReceivedFrame(name, frame))
        return received
    finally:
        for _, sock in sockets.values():
            sock.close()
