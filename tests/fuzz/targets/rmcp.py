"""IPMI: what a BMC may answer to the probe, to a login, and within a session. (Sensors are read by
pyghmi, in its own process.)"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from layercake.kraken.errors import OperationFailed
from powerman.ipmi import rmcp
from powerman.ipmi.facts import parse_power
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.power.test_rmcp import handshake, received, session


def sealed(keys: rmcp.SessionKeys, packet: bytes) -> bytes:
    """A packet whose authentication code is right, whatever stands in it."""
    return (
        packet + hmac.digest(keys.integrity, packet[4:], keys.suite.digest)[: keys.suite.code_len]
    )


def encrypted(keys: rmcp.SessionKeys, clear: bytes) -> bytes:
    """A payload that can be decrypted, whatever its padding."""
    encryptor = Cipher(algorithms.AES(keys.encryption), modes.CBC(bytes(16))).encryptor()
    return (
        bytes(16)
        + encryptor.update(clear.ljust(-(-len(clear) // 16) * 16 or 16, b"\0"))
        + encryptor.finalize()
    )


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """The first byte says at which step of the conversation the rest arrives."""
    keys = session()

    def login(
        kind: int, tag: int, take: Callable[[rmcp.Handshake, bytes], object]
    ) -> Callable[[bytes], object]:
        return lambda data: take(handshake(), rmcp.parse_plain(data, kind, tag)[1])

    def in_session(data: bytes) -> None:
        rmcp.parse_message(keys.unseal(data), 0, 1, 1)

    def by_the_bmc(data: bytes) -> None:
        payload = encrypted(keys, data[:200])
        head = (
            b"\x06\0\xff\x07\x06\xc0"
            + keys.console_id
            + bytes(4)
            + len(payload).to_bytes(2, "little")
        )
        packet = head + payload + b"\xff\x01\x07"
        parse_power(rmcp.parse_message(keys.unseal(sealed(keys, packet)), 0, 1, 1)[1])

    steps: tuple[Callable[[bytes], object], ...] = (
        rmcp.parse_probe,
        login(rmcp.OPEN_RESPONSE, 1, rmcp.Handshake.take_open_response),
        login(rmcp.RAKP2, 2, rmcp.Handshake.take_rakp2),
        login(rmcp.RAKP4, 3, rmcp.Handshake.take_rakp4),
        in_session,
        lambda data: in_session(sealed(keys, data)),
        by_the_bmc,
        lambda data: parse_power(rmcp.parse_message(data, 0, 1, 1)[1]),
    )

    def take(data: bytes) -> None:
        if data:
            steps[data[0] % len(steps)](data[1:])

    answer = bytes((0x81, 1 << 2)) + b"\x7b" + b"\x20\x04\x01\0\x21"  # chassis status: on
    answer += bytes((rmcp.checksum(answer[3:]),))
    packet = keys.seal(1, bytes(16), answer)
    code = keys.suite.code_len
    bodies = (
        *(received(name) for name in ("probe", "open", "rakp1", "rakp3")),
        packet,
        packet[:-code],
        answer + b"\1\1",
        answer,
    )
    yield Target(
        mutate.data([bytes([step]) + body for step, body in enumerate(bodies)]),
        take,
        (rmcp.Malformed, OperationFailed),
    )
