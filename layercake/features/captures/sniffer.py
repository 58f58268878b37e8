"""The process that captures packets: it gets its order as JSON in its argument, writes pcap to its
output, and ends by itself. It needs CAP_NET_RAW, as the boot service does."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

from layercake.base.packets import bpf
from layercake.base.text import parse_json
from layercake.features.captures.frames import cut, program

_ALL = 3
"""ETH_P_ALL: what this machine sends, too (packet(7))."""
_ETHERNETS = (1, 772)
"""ARPHRD_ETHER and ARPHRD_LOOPBACK: what has an Ethernet header."""
_LOOPBACK = 772
_HEAD = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0x40000, 1)
READY = b"listening\n"
"""What it says on its standard error once it misses nothing any more."""


def main() -> int:
    """Captures. Returns its exit code."""
    order = parse_json(sys.argv[1].encode())
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        bpf.attach(sock, program(order["macs"], order["addresses"]))
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        return 1
    _drain(sock)
    os.write(2, READY)
    left = order["bytes"] - os.write(1, _HEAD)
    until = time.monotonic() + order["seconds"]
    while (rest := until - time.monotonic()) > 0:
        sock.settimeout(rest)
        try:
            frame, source = sock.recvfrom(1 << 18)
        except TimeoutError:
            break
        if source[3] not in _ETHERNETS or (
            source[3] == _LOOPBACK and source[2] == socket.PACKET_OUTGOING
        ):
            continue  # on the loopback interface each frame is seen twice
        kept = cut(frame)
        at = time.time()
        record = struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(kept), len(frame)) + kept
        left -= len(record)
        if left < 0:
            return 0
        _write(record)
    return 0


def _drain(sock: socket.socket) -> None:
    """Leaves out what came before the filter was there."""
    sock.setblocking(False)
    try:
        while True:
            sock.recv(1)
    except BlockingIOError:
        pass


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())
