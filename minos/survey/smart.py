"""Whether a disk says of itself that it is failing, by ioctl: NVMe's health log, and SMART RETURN
STATUS of ATA."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

OK = "ok"
FAILING = "failing"
NOT_READ = "not read"
_NVME_ADMIN = 0xC0484E41
_SG_IO = 0x2285
_GET_LOG = 0x02
_HEALTH = 0x02
_ALL = 0xFFFFFFFF
_LOG_BYTES = 512
_SPARE_LOW = 0x01
_RELIABILITY = 0x04
_READ_ONLY = 0x08
_ATA_16 = bytes((0x85, 3 << 1, 0x20, 0, 0xDA, 0, 0, 0, 0, 0, 0x4F, 0, 0xC2, 0, 0xB0, 0))
"""ATA PASS-THROUGH (16), no data, with CK_COND: SMART RETURN STATUS (ACS-3, 7.52.7)."""
_TIMEOUT_MS = 5000


def health(name: str) -> str:
    """OK, FAILING, or NOT_READ for a disk that does not say, or cannot be asked."""
    try:
        if name.startswith("nvme"):
            return _nvme(f"/dev/{name}")
        return _ata(f"/dev/{name}") if name.startswith("sd") else NOT_READ
    except OSError:
        return NOT_READ


def _nvme(path: str) -> str:
    buffer = ctypes.create_string_buffer(_LOG_BYTES)
    command = bytearray(
        struct.pack(
            "<BBHIIIQQIIIIIIIIII",
            _GET_LOG,
            0,
            0,
            _ALL,
            0,
            0,
            0,
            ctypes.addressof(buffer),
            0,
            _LOG_BYTES,
            _HEALTH | (_LOG_BYTES // 4 - 1) << 16,
            0,
            0,
            0,
            0,
            0,
            _TIMEOUT_MS,
            0,
        )
    )
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if fcntl.ioctl(handle, _NVME_ADMIN, command, True):
            return NOT_READ
    finally:
        os.close(handle)
    return FAILING if buffer.raw[0] & (_SPARE_LOW | _RELIABILITY | _READ_ONLY) else OK


def _ata(path: str) -> str:
    command = ctypes.create_string_buffer(_ATA_16, 16)
    sense = ctypes.create_string_buffer(32)
    # struct sg_io_hdr: interface 'S', no data; the answer is in descriptor sense data
    header = bytearray(
        struct.pack(
            "@iiBBHIPPPIIiPBBBBHHiII",
            ord("S"),
            -1,
            16,
            32,
            0,
            0,
            0,
            ctypes.addressof(command),
            ctypes.addressof(sense),
            _TIMEOUT_MS,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        )
    )
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(handle, _SG_IO, header, True)
    finally:
        os.close(handle)
    return verdict(sense.raw)


def verdict(sense: bytes) -> str:
    """What the registers in an answer's sense data say (SAT-3, 12.2.2.6): 4F/C2 is well, F4/2C is
    failing."""
    if sense[:1] not in (b"\x72", b"\x73") or sense[8:9] != b"\x09" or len(sense) < 22:
        return NOT_READ
    return {(0x4F, 0xC2): OK, (0xF4, 0x2C): FAILING}.get((sense[17], sense[19]), NOT_READ)
