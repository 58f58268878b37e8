"""Classic BPF: which frames of a packet socket the kernel keeps from us. On the head."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

Program = Sequence[tuple[int, int, int, int]]
_SO_ATTACH_FILTER = 26
_IPV4 = 0x0800


def udp_to(port: int) -> Program:
    """A program for UDP over IPv4 to a port, as `tcpdump -dd` has it."""
    return [
        (0x28, 0, 0, 12),
        (0x15, 0, 8, _IPV4),
        (0x30, 0, 0, 23),
        (0x15, 0, 6, 17),
        (0x28, 0, 0, 20),
        (0x45, 4, 0, 0x1FFF),
        (0xB1, 0, 0, 14),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, port),
        (0x06, 0, 0, 0x40000),
        (0x06, 0, 0, 0),
    ]


def attach(made: socket.socket, program: Program) -> None:
    """Lets a packet socket have what the program takes, and nothing else. Raises OSError."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    made.setsockopt(
        socket.SOL_SOCKET,
        _SO_ATTACH_FILTER,
        struct.pack("HL", len(program), ctypes.addressof(code)),
    )
