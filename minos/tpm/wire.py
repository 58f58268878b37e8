"""How a TPM writes numbers and bytes (TPM 2.0 Library, Part 2: Structures), and the numbers that
are used here."""

from __future__ import annotations

import struct

SHA256 = 0x000B
SHA384 = 0x000C
NULL = 0x0010
RSA = 0x0001
ECC = 0x0023
ECDSA = 0x0018
AES = 0x0006
CFB = 0x0043
"""Algorithms (TPM_ALG_ID, section 6.3)."""
P256 = 3
P384 = 4
"""The curves NIST P-256 and P-384 (TPM_ECC_CURVE, section 6.4)."""
REGISTERS = 24
"""How many registers (PCRs) a PC has (PC Client Platform TPM Profile, section 4.6)."""
GENERATED = 0xFF544347
ATTEST_QUOTE = 0x8018
"""What a TPM itself has made begins with (TPM_GENERATED_VALUE, section 6.2), and that it is a quote
(TPM_ST, section 6.9)."""


def u8(number: int) -> bytes:
    """A number of one byte."""
    return struct.pack(">B", number)


def u16(number: int) -> bytes:
    """A number of two bytes."""
    return struct.pack(">H", number)


def u32(number: int) -> bytes:
    """A number of four bytes."""
    return struct.pack(">I", number)


def sized(data: bytes) -> bytes:
    """Bytes with their number before them (TPM2B_*)."""
    return u16(len(data)) + data


def selection(registers: tuple[int, ...]) -> bytes:
    """Registers of the bank of SHA-256 (TPML_PCR_SELECTION, section 10.9.7)."""
    bits = sum(1 << number for number in set(registers))
    return u32(1) + u16(SHA256) + u8(REGISTERS // 8) + bits.to_bytes(REGISTERS // 8, "little")


class Reader:
    """Takes apart what came from a TPM or a log. Each method raises ValueError where there is not
    enough."""

    def __init__(self, data: bytes, order: str = ">") -> None:
        self._data = data
        self._order = order
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes there are still."""
        return len(self._data) - self._at

    def read(self, count: int) -> bytes:
        """So many bytes."""
        if not 0 <= count <= self.left:
            raise ValueError(f"{count} bytes are said to follow, there are {self.left}")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        """A number of so many bytes."""
        return int.from_bytes(self.read(size), "big" if self._order == ">" else "little")

    def sized(self) -> bytes:
        """Bytes with their number before them."""
        return self.read(self.number(2))

    def selection(self) -> tuple[int, ...]:
        """Registers of one bank, that of SHA-256."""
        if self.number(4) != 1 or self.number(2) != SHA256:
            raise ValueError("expected registers of the bank of SHA-256 alone")
        bits = int.from_bytes(self.read(self.number(1)), "little")
        if bits >> REGISTERS:
            raise ValueError("there are no such registers")
        return tuple(number for number in range(REGISTERS) if bits >> number & 1)
