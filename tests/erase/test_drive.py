"""A disk is erased by its own means or overwritten, and read back: on a loop device of a real
kernel, and on drives that are played, because no test has an ATA disk that it may lock."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.kraken.errors import OperationFailed
from minos.erase.drive import FORMAT, PASSWORD, SECURITY, ZEROS, Drive, Erased
from minos.erase.orders import erase_by_all_paths
from minos.erase.selection import Own

MIB = 1 << 20
SIZE = 64 * MIB
_NVME_ADMIN = 0xC0484E41
_NVME_ID = 0x4E40
_SG_IO = 0x2285
_DISCARD = 0x1277
_ZEROOUT = 0x127F
_FLUSH = 0x1261


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    file = tmp_path / "disk.raw"
    file.write_bytes(os.urandom(MIB) * 64)
    done = subprocess.run(
        ["losetup", "-f", "--show", str(file)], check=True, capture_output=True, text=True
    )
    yield done.stdout.strip().removeprefix("/dev/"), file
    subprocess.run(["losetup", "-d", done.stdout.strip()], check=True)


@pytest.mark.root
@pytest.mark.xdist_group("loop")
def test_a_kernels_disk_is_overwritten_to_its_last_byte(loop: tuple[str, Path]) -> None:
    name, file = loop
    told: list[int] = []
    drive = Drive(Own(name, SIZE, "LOOP", ("S1",)), told.append)
    with pytest.raises(OperationFailed, match="cannot open it for itself"):
        Drive(Own(name, SIZE, "LOOP", ("S1",)))  # it has it alone
    assert not drive.is_blank()
    assert drive.erase() == Erased(ZEROS, verified=True)
    drive.close()
    assert told[-1] == SIZE
    assert file.read_bytes() == bytes(SIZE)


class Played:
    """A drive in a file: `ioctl` is what a kernel and a drive would do."""

    def __init__(self, file: Path, *, security: int | None = None, format_: bool = False) -> None:
        self.file, self.security, self.format = file, security, format_
        self.commands: list[int] = []
        self.password = b""
        self.keeps = False
        self.status = 0
        self.breaks: set[int] = set()
        """Commands that end with an error, and do nothing."""
        self.locked = bool((security or 0) & 4)
        self.zeroes = True
        file.write_bytes(b"secret" * (SIZE // 6) + b"\0" * (SIZE % 6))

    def wipe(self) -> None:
        if not self.keeps:
            self.file.write_bytes(bytes(SIZE))

    def ioctl(self, descriptor: int, request: int, data: bytearray) -> int:
        if request == _FLUSH:
            return 0
        if request == _DISCARD:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        if request == _ZEROOUT:
            if not self.zeroes:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            start, size = struct.unpack("=QQ", data)
            os.pwrite(descriptor, bytes(size), start)
            return 0
        if request == _NVME_ID:
            return 7
        if request == _NVME_ADMIN:
            return self._nvme(data)
        assert request == _SG_IO, hex(request)
        return self._ata(data)

    def _nvme(self, data: bytearray) -> int:
        code, _, _, space, _, _, _, address, _, _, word = struct.unpack_from("<BBHIIIQQIII", data)
        self.commands.append(code)
        if code in self.breaks:
            raise OSError(errno.EINTR, "it was broken off")
        if code == 0x80:
            assert (space, word) == (7, 2 | 1 << 9 | 1 << 5), (
                "the layout and protection that it has, with SES 1"
            )
            if not self.status:
                self.wipe()
            return self.status
        answer = bytearray(4096)
        if word == 1:
            answer[256] = 2 if self.format else 0
        else:
            answer[26], answer[29] = 2, 1
        ctypes.memmove(address, bytes(answer), 4096)
        return 0

    def _ata(self, data: bytearray) -> int:
        (size,) = struct.unpack_from("=I", data, 12)
        address, block = struct.unpack_from("=QQ", data, 16)
        packet = ctypes.string_at(block, 16)
        assert packet[0] == 0x85
        self.commands.append(packet[14])
        if packet[14] in self.breaks:
            data[64] = 2
        elif packet[14] == 0xEC:
            words = [0] * 256
            words[128] = self.security if self.security is not None else 0
            words[128] |= 2 * bool(self.password)
            ctypes.memmove(address, struct.pack("<256H", *words), 512)
        elif packet[14] == 0xF1:
            self.password = ctypes.string_at(address + 2, 32)
        elif packet[14] in (0xF2, 0xF4, 0xF6):
            if ctypes.string_at(address + 2, 32) != self.password or (
                self.locked and packet[14] == 0xF6
            ):
                data[64] = 2  # CHECK CONDITION
                return 0
            if packet[14] == 0xF2:
                self.locked = False
                return 0
            if packet[14] == 0xF4:
                self.wipe()
            self.password = b""
            self.security = (self.security or 0) & ~6
        assert size in (0, 512)
        return 0


def erase(tmp_path: Path, played: Played, name: str = "sda") -> Erased:
    (tmp_path / name).symlink_to(played.file.name)
    drive = Drive(
        Own(name, SIZE, "M", ("S",), ata=name.startswith("sd")), ioctl=played.ioctl, dev=tmp_path
    )
    try:
        return drive.erase()
    finally:
        drive.close()


def test_nvme_is_formatted_as_it_is_formatted_now(tmp_path: Path) -> None:
    assert erase(tmp_path, Played(tmp_path / "f", format_=True), "nvme0n1") == Erased(
        FORMAT, verified=True
    )


def test_nvme_that_cannot_format_is_overwritten(tmp_path: Path) -> None:
    played = Played(tmp_path / "f")
    assert erase(tmp_path, played, "nvme0n1").way == ZEROS
    assert 0x80 not in played.commands


@pytest.mark.parametrize("status", [0x10A, 0x002, 0x4003])
def test_nvme_that_refuses_to_format_is_overwritten(tmp_path: Path, status: int) -> None:
    played = Played(tmp_path / "f", format_=True)
    played.status = status
    assert erase(tmp_path, played, "nvme0n1") == Erased(ZEROS, verified=True)
    assert played.file.read_bytes() == bytes(SIZE)


def test_nvme_whose_format_is_broken_off_is_overwritten(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", format_=True)
    played.breaks = {0x80}
    assert erase(tmp_path, played, "nvme0n1") == Erased(ZEROS, verified=True)


def test_a_drive_that_says_it_is_erased_and_is_not_is_overwritten(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", format_=True)
    played.keeps = True
    assert erase(tmp_path, played, "nvme0n1") == Erased(f"{FORMAT}, then {ZEROS}", verified=True)
    assert played.file.read_bytes() == bytes(SIZE)


def test_ata_erases_itself_and_keeps_no_password(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", security=1)
    assert erase(tmp_path, played) == Erased(SECURITY, verified=True)
    assert played.commands == [0xEC, 0xF1, 0xF3, 0xF4]
    assert played.password == b""


def test_ata_whose_erase_was_cut_off_is_erased_with_our_password(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", security=1 | 2 | 4)
    played.password = PASSWORD
    assert erase(tmp_path, played).way == SECURITY
    assert played.commands == [0xEC, 0xF3, 0xF4]


@pytest.mark.parametrize("refused", [0xF1, 0xF3, 0xF4])
def test_ata_that_refuses_to_erase_itself_is_overwritten_and_keeps_no_password(
    tmp_path: Path, refused: int
) -> None:
    played = Played(tmp_path / "f", security=1)
    played.breaks = {refused}
    assert erase(tmp_path, played) == Erased(ZEROS, verified=True)
    assert played.password == b""
    assert played.file.read_bytes() == bytes(SIZE)


def test_ata_locked_with_our_password_that_refuses_is_unlocked_and_overwritten(
    tmp_path: Path,
) -> None:
    played = Played(tmp_path / "f", security=1 | 2 | 4)
    played.password = PASSWORD
    played.breaks = {0xF4}
    assert erase(tmp_path, played) == Erased(ZEROS, verified=True)
    assert (played.password, played.locked) == (b"", False)


def test_ata_whose_password_cannot_be_taken_off_fails_and_says_so(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", security=1)
    played.breaks = {0xF4, 0xF6}
    with pytest.raises(OperationFailed, match="cannot be taken off"):
        erase(tmp_path, played)


def test_a_disk_that_knows_no_way_to_write_zeros_is_written(tmp_path: Path) -> None:
    played = Played(tmp_path / "f")
    played.zeroes = False
    assert erase(tmp_path, played) == Erased(ZEROS, verified=True)
    assert played.file.read_bytes() == bytes(SIZE)


def test_two_paths_to_a_disk_are_told_by_what_is_written(tmp_path: Path) -> None:
    played = Played(tmp_path / "f")
    another = Played(tmp_path / "g")
    for name, file in (("sda", "f"), ("sdb", "f"), ("sdc", "g")):
        (tmp_path / name).symlink_to(file)
    (tmp_path / "cciss").mkdir()
    (tmp_path / "cciss/c0d0").symlink_to("../f")

    def open_drive(disk: Own) -> Drive:
        drive = another if disk.name == "sdc" else played
        return Drive(disk, ioctl=drive.ioctl, dev=tmp_path)

    own = Own("sda", SIZE, "M", ("S1",), others=("sdb", "sdc", "cciss!c0d0"))
    assert erase_by_all_paths(own, open_drive) == Erased(ZEROS, verified=True)
    assert played.file.read_bytes() == another.file.read_bytes() == bytes(SIZE), (
        "one has the serial number of the other, and is another disk"
    )


def test_ata_with_somebody_elses_password_fails_and_says_so(tmp_path: Path) -> None:
    played = Played(tmp_path / "f", security=1 | 2 | 4)
    played.password = b"x" * 32
    with pytest.raises(OperationFailed, match="a password that is not ours"):
        erase(tmp_path, played)
    with pytest.raises(OperationFailed, match="firmware has frozen it"):
        _frozen(tmp_path)


def _frozen(tmp_path: Path) -> Erased:
    place = tmp_path / "frozen"
    place.mkdir()
    return erase(place, Played(place / "f", security=1 | 2 | 8))


@pytest.mark.parametrize("security", [0, 1 | 8])
def test_ata_without_security_or_frozen_is_overwritten(tmp_path: Path, security: int) -> None:
    assert erase(tmp_path, Played(tmp_path / "f", security=security)).way == ZEROS
