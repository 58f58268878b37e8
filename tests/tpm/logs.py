"""Event logs as firmware writes them, of SHA-256 alone."""

from __future__ import annotations


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little")


def head_of(*algorithms: tuple[int, int]) -> bytes:
    """The event that says which digests follow: (algorithm, size)."""
    spec = b"Spec ID Event03\0" + number(0) + bytes((0, 2, 0, 2)) + number(len(algorithms))
    spec += b"".join(number(one, 2) + number(size, 2) for one, size in algorithms) + b"\0"
    return number(0) + number(3) + bytes(20) + number(len(spec)) + spec


def step(register: int, digest: bytes, said: bytes, kind: int = 0xD) -> bytes:
    """Something that went into a register."""
    return (
        number(register)
        + number(kind)
        + number(1)
        + number(0xB, 2)
        + digest
        + number(len(said))
        + said
    )


def log_of(*steps: tuple[int, bytes, bytes]) -> bytes:
    """A whole log."""
    return head_of((0xB, 32)) + b"".join(step(*one) for one in steps)
