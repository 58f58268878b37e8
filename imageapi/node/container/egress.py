"""Keeps the processes of a container's cgroup from ports of the head that are the agent's alone.

Containers share the node's network, and so its address: what one of them sends to the head counts
as the node's. A program of the kernel at the container's cgroup (BPF_PROG_TYPE_CGROUP_SKB,
<linux/bpf.h>) looks at each packet that a socket of the container sends. It needs no module of the
kernel, and goes with the cgroup.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imageapi.node.libc import checked
from layercake.kraken.errors import OperationFailed

_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD = 5
_PROG_ATTACH = 8
_CGROUP_SKB = 8
_INET_EGRESS = 1
_SKB_LOAD_BYTES = 26
_ATTRIBUTES = 128
_LICENCE = b"BSD\0"
_TCP = 6
_UDP = 17
_ROUTING = 43
"""IPv6's routing header, by which a packet's address is not where it goes; anybody may set one."""

_V4_DESTINATION = 16
_V6_DESTINATION = 24
_V4_HEADER = 20
_V6_HEADER = 40
_BUFFER = -64
"""Where on the program's stack the packet's header is read to."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class HeadPorts:
    """The head's addresses, and the TCP and UDP ports there that are for agents."""

    addresses: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


class _Program:
    """Instructions of eight bytes; jumps are to labels."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def append(
        self, code: int, target: int = 0, source: int = 0, offset: int | str = 0, value: int = 0
    ) -> None:
        """One instruction (struct bpf_insn)."""
        self._code.append((code, target, source, offset, value))

    def label(self, name: str) -> None:
        """The next instruction has a name."""
        self._labels[name] = len(self._code)

    def jump_if_equal(self, register: int, value: int, label: str) -> None:
        """By the lower 32 bits."""
        self.append(0x16, register, 0, label, _signed(value))

    def jump_unless_equal(self, register: int, value: int, label: str) -> None:
        """By the lower 32 bits."""
        self.append(0x56, register, 0, label, _signed(value))

    def read_packet(self, offset_register: int | None, offset: int, size: int) -> None:
        """Bytes of the packet to the stack; goes to "pass" if there are fewer."""
        self.append(0xBF, 1, 6)
        if offset_register is None:
            self.append(0xB7, 2, 0, 0, offset)
        else:
            self.append(0xBF, 2, offset_register)
        self.append(0xBF, 3, 10)
        self.append(0x07, 3, 0, 0, _BUFFER)
        self.append(0xB7, 4, 0, 0, size)
        self.append(0x85, 0, 0, 0, _SKB_LOAD_BYTES)
        self.append(0x55, 0, 0, "pass", 0)

    def from_stack(self, register: int, size: int, offset: int) -> None:
        """A register from the stack: one, two or four bytes."""
        self.append({1: 0x71, 2: 0x69, 4: 0x61}[size], register, 10, _BUFFER + offset)

    def code(self) -> bytes:
        """What the kernel takes."""
        code = b""
        for place, (operation, target, source, offset, value) in enumerate(self._code):
            distance = self._labels[offset] - place - 1 if isinstance(offset, str) else offset
            code += struct.pack("=BBhi", operation, source << 4 | target, distance, value)
        return code


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _as_loaded(packed: bytes) -> list[int]:
    """As a load of four bytes has them."""
    return [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]


def program(head: HeadPorts) -> bytes:
    """Drops packets to these ports at these addresses, and passes all others. Raises OSError for
    what is no address."""
    addresses = [_packed(address) for address in head.addresses]
    code = _Program()
    code.append(0xBF, 6, 1)
    code.read_packet(None, 0, 20)
    code.from_stack(8, 1, 0)
    code.append(0xBF, 7, 8)
    code.append(0x77, 7, 0, 0, 4)
    code.jump_if_equal(7, 6, "v6")
    code.jump_unless_equal(7, 4, "pass")
    _match_v4(code, [packed for packed in addresses if len(packed) == 4])
    code.label("v6")
    _match_v6(code, [packed for packed in addresses if len(packed) == 16])
    code.label("ports")
    _match_ports(code, head.ports)
    code.label("pass")
    code.append(0xB7, 0, 0, 0, 1)
    code.append(0x95)
    code.label("drop")
    code.append(0xB7, 0, 0, 0, 0)
    code.append(0x95)
    return code.code()


def _match_v4(code: _Program, addresses: list[bytes]) -> None:
    """Leaves the header's length in register 7, the protocol in 9. With options in the header the
    packet's address may not be where it goes (RFC 791, source routes; anybody may set them)."""
    code.append(0xBF, 7, 8)
    code.append(0x57, 7, 0, 0, 15)
    code.append(0x67, 7, 0, 0, 2)  # it is counted in words
    code.from_stack(9, 1, 9)
    code.jump_if_equal(7, _V4_HEADER, "plain")
    code.jump_if_equal(9, _TCP, "drop")
    code.jump_if_equal(9, _UDP, "drop")
    code.label("plain")
    code.from_stack(1, 4, _V4_DESTINATION)
    for packed in addresses:
        code.jump_if_equal(1, _as_loaded(packed)[0], "ports")
    code.append(0x05, 0, 0, "pass")


def _match_v6(code: _Program, addresses: list[bytes]) -> None:
    """The same."""
    code.from_stack(9, 1, 6)
    code.jump_if_equal(9, _ROUTING, "drop")
    code.append(0xB7, 7, 0, 0, _V6_HEADER)
    code.read_packet(None, _V6_DESTINATION, 16)
    for number, packed in enumerate(addresses):
        for place, word in enumerate(_as_loaded(packed)):
            code.from_stack(1, 4, 4 * place)
            code.jump_unless_equal(1, word, f"after {number}")
        code.append(0x05, 0, 0, "ports")
        code.label(f"after {number}")
    code.append(0x05, 0, 0, "pass")


def _match_ports(code: _Program, ports: tuple[int, ...]) -> None:
    code.jump_if_equal(9, _TCP, "transport")
    code.jump_unless_equal(9, _UDP, "pass")
    code.label("transport")
    code.read_packet(7, 0, 4)
    code.from_stack(1, 2, 2)
    for port in ports:
        code.jump_if_equal(1, int.from_bytes(port.to_bytes(2, "big"), sys.byteorder), "drop")


NEEDS = ("SYS_ADMIN", "NET_ADMIN")
"""What an agent needs for it (BPF_PROG_LOAD, BPF_PROG_ATTACH). That of minOS has it."""


def close_head_ports(cgroup: Path, head: HeadPorts) -> None:
    """Closes the head's ports to all processes of a cgroup and of those below. Raises
    OperationFailed."""
    try:
        handle = _load(program(head))
        try:
            _attach(cgroup, handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise OperationFailed(
            f"cannot close the head's ports to a container: {error.strerror}",
            hint="the node's kernel needs CONFIG_CGROUP_BPF",
        ) from None


def _load(code: bytes) -> int:
    kept = [ctypes.create_string_buffer(data, len(data)) for data in (code, _LICENCE)]
    places = (ctypes.addressof(buffer) for buffer in kept)
    return _bpf(_PROG_LOAD, struct.pack("=IIQQ", _CGROUP_SKB, len(code) // 8, *places))


def _attach(cgroup: Path, handle: int) -> None:
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _bpf(_PROG_ATTACH, struct.pack("=IIII", directory, handle, _INET_EGRESS, 0))
    finally:
        os.close(directory)


def _bpf(command: int, attributes: bytes) -> int:
    padded = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    call = _BPF.get(os.uname().machine)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return checked(_libc.syscall(call, command, padded, _ATTRIBUTES))


def parse_head_ports(data: Mapping[str, Any]) -> HeadPorts:
    """What the head says at the join: {"addresses", "ports"}, empty from an older one. Raises
    OperationFailed."""
    try:
        addresses = tuple(map(str, data.get("addresses", ())))
        ports = tuple(map(int, data.get("ports", ())))
        program(HeadPorts(addresses, ports))
    except (TypeError, ValueError, OSError, OverflowError) as error:
        raise OperationFailed(f"cannot use the head's ports: {error}") from None
    return HeadPorts(addresses, ports)
