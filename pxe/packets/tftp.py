"""TFTP packets. RFC 1350 (packets), 2347 (options), 2348 (blksize), 2349 (tsize, timeout), 7440
(windowsize)."""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from layercake.base.text import whole_number
from layercake.kraken.errors import WireError

_TWO = struct.Struct("!HH")
_MAX_REQUEST = 512  # RFC 2347 section "Packet formats"
_MAX_NAME = 128
PLAIN_BLOCK = 512
# Larger blocks than this would be cut into IP fragments on an Ethernet link: 1500 - 20 (IP) - 8
# (UDP) - 4 (TFTP).
MAX_BLOCK = 1468
MAX_WINDOW = 16
MAX_TIMEOUT = 8
"""Seconds. RFC 2349 allows 255; firmware asks for a few, and who asks for more would hold a place
here for half an hour."""


_READ_ON = re.compile(rb"([\x20-\x7e]+?)(?:\xff|B[\x01-\x1f]).*", re.DOTALL)


class Op(enum.IntEnum):
    """Packet types."""

    RRQ = 1
    WRQ = 2
    DATA = 3
    ACK = 4
    ERROR = 5
    OACK = 6


_DATA = int(Op.DATA)


class Code(enum.IntEnum):
    """Error codes."""

    UNDEFINED = 0
    NOT_FOUND = 1
    ACCESS = 2
    ILLEGAL = 4


class TftpError(WireError):
    """A request that cannot be read or served; `code` goes to the client."""

    def __init__(self, message: str, code: Code = Code.ILLEGAL) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read request whose parts are well-formed. `options` has lower-case names; values are as
    sent."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Terms:
    """What both sides agreed on. `timeout` is in seconds; `acknowledged` are the options to
    confirm, in the order asked."""

    block: int
    window: int
    timeout: float
    acknowledged: tuple[tuple[str, str], ...]


def parse_request(data: bytes) -> ReadRequest:
    """Reads the first packet of a client. Raises TftpError, and nothing else."""
    name, mode, *rest = _request_fields(data)
    if not name or len(name) > _MAX_NAME:
        raise TftpError("the file name is empty or too long", Code.NOT_FOUND)
    if mode.lower() != "octet":
        raise TftpError("only mode octet is served", Code.UNDEFINED)
    return ReadRequest(
        name, {key.lower(): value for key, value in zip(rest[::2], rest[1::2], strict=True)}
    )


def _request_fields(data: bytes) -> list[str]:
    """Name, mode, and pairs of options. Raises TftpError."""
    if len(data) < 4 or len(data) > _MAX_REQUEST:
        raise TftpError("not a request")
    op = int.from_bytes(data[:2], "big")
    if op == Op.WRQ:
        raise TftpError("this server only sends", Code.ACCESS)
    if op != Op.RRQ or data[-1] != 0:
        raise TftpError("not a request")
    fields = data[2:-1].split(b"\0")
    fields[0] = _name_without_rest(fields[0])
    if len(fields) < 2 or len(fields) % 2:
        raise TftpError("a request is a name, a mode, and pairs of options")
    if not all(f.isascii() and f.decode("ascii").isprintable() for f in fields):
        raise TftpError("only printable ASCII is allowed")
    return [f.decode("ascii") for f in fields]


def _name_without_rest(name: bytes) -> bytes:
    """A file name without what firmware has read behind it: option 67 has the name without a zero
    byte, and some firmware looks for one. It reads on into the end of the options (0xFF), or into
    option 66: its code, its length, its value."""
    match = _READ_ON.fullmatch(name)
    return name if match is None else match[1]


def negotiate(options: Mapping[str, str], size: int) -> Terms:
    """The terms for a file of `size` bytes. An option that is unknown or out of range is left out,
    as RFC 2347 has it."""
    block = PLAIN_BLOCK
    window = 1
    timeout = 1.0
    acknowledged: list[tuple[str, str]] = []
    for key, value in options.items():
        number = whole_number(value, 10**10)
        if number is None:
            continue
        if key == "blksize" and 8 <= number <= 65464:
            block = min(number, MAX_BLOCK)
            acknowledged.append((key, str(block)))
        elif key == "tsize":
            acknowledged.append((key, str(size)))
        elif key == "timeout" and 1 <= number <= MAX_TIMEOUT:
            timeout = float(number)
            acknowledged.append((key, value))
        elif key == "windowsize" and 1 <= number <= 65535:
            window = min(number, MAX_WINDOW)
            acknowledged.append((key, str(window)))
    return Terms(block, window, timeout, tuple(acknowledged))


def build_oack(options: tuple[tuple[str, str], ...]) -> bytes:
    """Option acknowledgement."""
    return b"\0\x06" + b"".join(f"{key}\0{value}\0".encode("ascii") for key, value in options)


def build_data(block: int, payload: bytes) -> bytes:
    """One block; its number wraps at 65536 to 0, as all clients that take large files expect."""
    return _TWO.pack(_DATA, block & 0xFFFF) + payload


def build_error(code: Code, text: str) -> bytes:
    """An error packet."""
    return _TWO.pack(Op.ERROR, code) + text.encode("ascii", "replace") + b"\0"


def parse_answer(data: bytes | bytearray, size: int) -> tuple[int, int]:
    """(op, block or error code) of what a client sends during a transfer, the first `size` bytes.
    Raises TftpError."""
    if size < 4:
        raise TftpError("too short")
    op, number = _TWO.unpack_from(data)
    return op, number
