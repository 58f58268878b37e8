"""A disk is erased: by NVMe's Format or ATA's Security Erase where it has them and does not refuse
them, else discarded and overwritten with zeros. In the end samples of it are read back. No password
of ours stays on it.

Sources: NVMe Base 2.0, 5.14 (Format NVM), 5.17 (Identify); ACS-3, 7.37 to 7.42 (SECURITY ...), 7.12
(IDENTIFY DEVICE); SAT-3, 12.2; Linux' linux/fs.h (BLKDISCARD, BLKZEROOUT), linux/nvme_ioctl.h,
scsi/sg.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from layercake.kraken.errors import OperationFailed
from minos.erase.selection import SECTOR, Own

Ioctl = Callable[[int, int, bytearray], int]
"""(descriptor, request, what is handed in and out) -> what the kernel returns. Raises OSError."""
PIECE = 1 << 30
"""Bytes that are overwritten at a time: so often it is said how far it is."""
SAMPLES = 256
SAMPLE = 64 << 10
FORMAT = "NVMe Format"
SECURITY = "ATA Security Erase"
ZEROS = "overwritten with zeros"
PASSWORD = b"layercake".ljust(32, b"\0")
"""For the seconds or hours of a Security Erase: a disk that loses its power meanwhile is locked
with it, and erased with it."""
_DISCARD = 0x1277
_ZEROOUT = 0x127F
_FLUSH = 0x1261
_NVME_ADMIN = 0xC0484E41
_NVME_ID = 0x4E40
_SG_IO = 0x2285
_IDENTIFY = 0x06
_FORMAT = 0x80
_WRITE = 4 << 20
_SET_PASSWORD = 0xF1
_UNLOCK = 0xF2
_ERASE_PREPARE = 0xF3
_ERASE_UNIT = 0xF4
_DISABLE_PASSWORD = 0xF6
_IDENTIFY_ATA = 0xEC
_SUPPORTED = 1
_ENABLED = 2
_LOCKED = 4
_FROZEN = 8
_ENHANCED = 32
"""Bits of word 128 of IDENTIFY DEVICE."""
_DAY_MS = 24 * 3600 * 1000
_SOON_MS = 15_000


class Erased(NamedTuple):
    """What was done to a disk."""

    way: str
    verified: bool


def kernel(descriptor: int, request: int, data: bytearray) -> int:
    """The ioctl of the kernel."""
    return int(fcntl.ioctl(descriptor, request, data, True))


class Drive:
    """A disk that nobody else has open. `tell` hears how many of its bytes are overwritten."""

    def __init__(
        self,
        disk: Own,
        tell: Callable[[int], None] = lambda done: None,
        ioctl: Ioctl = kernel,
        dev: Path = Path("/dev"),
    ) -> None:
        self._disk = disk
        self._tell = tell
        self._ioctl = ioctl
        device = dev / disk.name.replace("!", "/")  # sysfs has cciss!c0d0 for /dev/cciss/c0d0
        try:
            self._handle = os.open(device, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            raise OperationFailed(f"cannot open it for itself: {error.strerror}") from None

    def close(self) -> None:
        """Lets it go."""
        os.close(self._handle)

    def erase(self) -> Erased:
        """Erases all of it, and reads samples of it back. Raises OperationFailed if that cannot be
        done, or a sample is not what it has to be."""
        try:
            method = self._by_its_own_means()
            if method and self.is_blank():
                return Erased(method, verified=True)
            if method == SECURITY:
                self._remove_password(foreign=False)
            self._overwrite()
            if not self.is_blank():
                raise OperationFailed(
                    "it was overwritten with zeros, and what is read back is something else"
                )
        except OSError as error:
            raise OperationFailed(f"{error.strerror or error}") from None
        return Erased(f"{method}, then {ZEROS}" if method else ZEROS, verified=True)

    def is_blank(self) -> bool:
        """Whether samples over all of the disk, its beginning and its end among them, are of one
        same byte, 0 or 255. Raises OSError."""
        os.fsync(self._handle)
        self._ioctl(self._handle, _FLUSH, bytearray(8))
        steps = max(1, min(SAMPLES, self._disk.size // SAMPLE))
        last = max(0, self._disk.size - SAMPLE)
        for step in range(steps + 1):
            data = os.pread(self._handle, SAMPLE, last * step // steps // SECTOR * SECTOR)
            if not data or (data.strip(b"\0") and data.strip(b"\xff")):
                return False
        return True

    def write_mark(self) -> bytes:
        """Writes something at its beginning that no other disk has, and returns it. Raises
        OSError."""
        mark = os.urandom(SECTOR) * (SAMPLE // SECTOR)
        os.pwrite(self._handle, mark, 0)
        os.fsync(self._handle)
        return mark

    def has_mark(self, mark: bytes) -> bool:
        """Whether it begins with a mark: then it is the disk that the mark was written to, by
        another path. Raises OSError."""
        self._ioctl(self._handle, _FLUSH, bytearray(8))
        return os.pread(self._handle, len(mark), 0) == mark

    def _by_its_own_means(self) -> str:
        if self._disk.name.startswith("nvme"):
            return FORMAT if self._format() else ""
        return SECURITY if self._disk.ata and self._security_erase() else ""

    def _overwrite(self) -> None:
        whole = bytearray(struct.pack("=QQ", 0, self._disk.size))
        # An SSD forgets what it maps, also what cannot be reached any more. One that has no such
        # thing, or refuses it, is overwritten alone.
        with contextlib.suppress(OSError):
            self._ioctl(self._handle, _DISCARD, whole)
        for start in range(0, self._disk.size, PIECE):
            self._tell(start)
            self._write_zeros(start, min(PIECE, self._disk.size - start))
        os.fsync(self._handle)
        self._tell(self._disk.size)

    def _write_zeros(self, start: int, size: int) -> None:
        """Zeros by the kernel's own way, and by writing where that is refused. Raises OSError."""
        try:
            self._ioctl(self._handle, _ZEROOUT, bytearray(struct.pack("=QQ", start, size)))
        except OSError:
            zeros = bytes(min(size, _WRITE))
            end = start + size
            while start < end:
                start += os.pwrite(self._handle, zeros[: end - start], start)

    # ---- NVMe
    # -----

    def _format(self) -> bool:
        """Formats the namespace with Secure Erase; whether the controller can and does."""
        try:
            space = self._ioctl(self._handle, _NVME_ID, bytearray(8))
            controller = self._identify(0, 1)
            namespace = self._identify(space, 0)
            if not controller[256] & 2:  # OACS: Format NVM
                return False
            word = _format_word(namespace)
            return self._admin(_FORMAT, space, word, None, _DAY_MS) == 0
        except OSError:
            return False

    def _identify(self, space: int, what: int) -> bytes:
        buffer = ctypes.create_string_buffer(4096)
        if status := self._admin(_IDENTIFY, space, what, buffer, _SOON_MS):
            raise OSError(errno.EIO, f"it refuses Identify with status {status:#x}")
        return buffer.raw

    def _admin(
        self,
        code: int,
        space: int,
        word: int,
        buffer: ctypes.Array[ctypes.c_char] | None,
        limit_ms: int,
    ) -> int:
        address, size = (ctypes.addressof(buffer), len(buffer)) if buffer is not None else (0, 0)
        return self._ioctl(
            self._handle,
            _NVME_ADMIN,
            bytearray(
                struct.pack(
                    "<BBHIIIQQIIIIIIIIII",
                    code,
                    0,
                    0,
                    space,
                    0,
                    0,
                    0,
                    address,
                    0,
                    size,
                    word,
                    0,
                    0,
                    0,
                    0,
                    0,
                    limit_ms,
                    0,
                )
            ),
        )

    # ---- ATA
    # -----

    def _security_erase(self) -> bool:
        """Has the disk erase itself; whether it can and does. No password of ours is on it then.
        Raises OperationFailed for one that has somebody else's."""
        try:
            security = self._security_word()
        except OSError:
            return False
        if not security & _SUPPORTED or (security & _FROZEN and not security & _ENABLED):
            return False  # it has none, or the firmware has frozen it: then it is overwritten
        if security & _FROZEN:
            raise OperationFailed(
                "it has a password that is not ours, and the machine's firmware has frozen it",
                hint="take the password off by the firmware's setup, or switch the machine off at "
                "its plug",
            )
        try:
            if not security & _ENABLED:
                self._ata(_SET_PASSWORD, _with_password(0))
            self._ata(_ERASE_PREPARE)
            enhanced = 2 if security & _ENHANCED else 0
            self._ata(_ERASE_UNIT, _with_password(enhanced), limit_ms=_DAY_MS)
            return True
        except OSError:
            self._remove_password(foreign=bool(security & _ENABLED))
            return False

    def _remove_password(self, *, foreign: bool) -> None:
        """Takes our password off a drive that refused to erase itself: with it, the drive would be
        locked from its next start on. `foreign`: it had one before. Raises OperationFailed if it
        stays."""
        try:
            security = self._security_word()
            if not security & _ENABLED:
                return
            if security & _LOCKED:
                self._ata(_UNLOCK, _with_password(0))
            self._ata(_DISABLE_PASSWORD, _with_password(0))
            if not self._security_word() & _ENABLED:
                return
            why = "the password is still on it"
        except OSError as error:
            why = error.strerror or str(error)
        raise OperationFailed(
            f"it refuses ATA Security Erase: {why}"
            + (
                ": it has a password that is not ours"
                if foreign
                else ": the password that was set for it cannot be taken off"
            ),
            hint="take the password off by the firmware's setup, or replace the drive",
        )

    def _security_word(self) -> int:
        """Word 128 of IDENTIFY DEVICE. Raises OSError."""
        return int(struct.unpack("<256H", self._ata(_IDENTIFY_ATA, reads=True))[128])

    def _ata(
        self, command: int, data: bytes = b"", *, reads: bool = False, limit_ms: int = _SOON_MS
    ) -> bytes:
        """An ATA command by ATA PASS-THROUGH (16): with 512 bytes one way or the other, or none.
        Raises OSError."""
        protocol, flags, direction = (
            (4, 0x0E, -3) if reads else (5, 0x06, -2) if data else (3, 0, -1)
        )
        packet = bytes(
            (
                0x85,
                protocol << 1,
                flags,
                0,
                0,
                0,
                1 if flags else 0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                command,
                0,
            )
        )
        buffer = ctypes.create_string_buffer(data or bytes(512), 512)
        sense = ctypes.create_string_buffer(32)
        block = ctypes.create_string_buffer(packet, 16)
        size, address = (512, ctypes.addressof(buffer)) if flags else (0, 0)
        header = bytearray(
            struct.pack(
                "@iiBBHIPPPIIiPBBBBHHiII",
                ord("S"),
                direction,
                16,
                32,
                0,
                size,
                address,
                ctypes.addressof(block),
                ctypes.addressof(sense),
                limit_ms,
                *(12 * [0]),
            )
        )
        self._ioctl(self._handle, _SG_IO, header)
        status, _, _, _, host, driver = struct.unpack_from("@BBBBHH", header, 64)
        if host or status or (driver & 0x0F and driver & 0x0F != 8):
            raise OSError(
                errno.EIO, f"command {command:#x} failed (status {status:#x}, host {host:#x})"
            )
        return buffer.raw


def _format_word(namespace: bytes) -> int:
    """Command dword 10 of NVMe Format: the layout and protection that the namespace has now, with
    SES 1 (User Data Erase)."""
    layout = namespace[26]
    protection = namespace[29]
    word = (layout & 0x0F) | (layout >> 5 & 3) << 12 | (layout >> 4 & 1) << 4
    return word | (protection & 7) << 5 | (protection >> 3 & 1) << 8 | 1 << 9


def _with_password(flags: int) -> bytes:
    """The 512 bytes of an ATA security command: the user's password is ours."""
    return struct.pack("<H32s478x", flags, PASSWORD)
