"""Consoles: what a BMC may send of Serial over LAN, and what a machine may write on its console.
And the small answers of BMCs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from layercake.kraken.errors import OperationFailed
from powerman.console.lines import LONGEST, STAMP, Lines, parse_stamp
from powerman.health import VALUES
from powerman.ipmi import rmcp
from powerman.ipmi.capping import dcmi_limit, dcmi_request
from powerman.ipmi.facts import dcmi_draw, ipmi_firmware, ipmi_health, parse_log_mark
from powerman.ipmi.sol import QUEUE, Sol, decode, parse_activated
from tests.fuzz import mutate
from tests.fuzz.harness import Target

SEEDS = (
    b"\x01\0\0\0login: ",
    b"\0\x01\x05\0",
    b"\0\x01\0\x60",
    b"\x0f\x0f\xff\xff\x1b[2J",
    b"\0\0\0\x10",
    b"[    1.0] line\r\nnext\n\rthird",
    b"\x1b]0;title\x07\x1b[1;31mred\x1b[0m\r",
    b"\x1bP" + b"q" * 200 + b"\x1b\\x\n",
    b"\xe2\x82\xac\x9b2J\xc2\x9b\n",
    bytes(range(256)),
    b"\xdc\x9c\x01" + bytes(14) + b"\x40",
    bytes(13),
    b"\x51" + bytes(14),
)
WORDS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\x1b[",
    b"\x1b]",
    b"\x1b",
    b"\x07",
    b"\x1b\\",
    b"\xff",
    b"\xe2\x80\xae",
    b"\0",
)


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """The first byte says what reads the rest."""

    def packets(data: bytes) -> None:
        sol, now, size = Sol(24), 0.0, 1 + data[:1][0] % 40 if data else 1
        sol.write(b"typed " * 20)
        for at in range(0, len(data), size):
            now += 0.1
            with contextlib.suppress(rmcp.Malformed):
                found = sol.receive(data[at : at + size], now)
                assert len(found.data) <= size and len(found.send) in (0, 4)
            packet = sol.due(now)
            assert not packet or (1 <= decode(packet).sequence <= 15 and len(packet) <= 24)
            assert sol.write(b"x") + QUEUE >= QUEUE

    def text(data: bytes) -> None:
        lines, whole = Lines(), Lines()
        pieces = (
            "".join(lines.add(data[at : at + 7], 1.5) for at in range(0, len(data), 7))
            + lines.end()
        )
        for line in pieces.splitlines():
            assert (
                line.isprintable()
                and parse_stamp(line[:STAMP]) == 1.5
                and len(line) <= LONGEST + STAMP + 1
            )
        if len(data) < LONGEST:
            assert pieces == whole.add(data, 1.5) + whole.end(), "the pieces make no difference"

    def answers(data: bytes) -> None:
        assert ipmi_health(data).value in VALUES
        parse_log_mark(data)
        dcmi_draw(data)
        with contextlib.suppress(OperationFailed):
            assert (dcmi_limit(data[0], data[1:]) if data else None) in (None, *range(1 << 16))
        assert len(dcmi_request(300, data)) == 15
        ipmi_firmware(data)
        parse_activated(data)

    steps: tuple[Callable[[bytes], object], ...] = (packets, text, answers)

    def take(data: bytes) -> None:
        if data:
            steps[data[0] % len(steps)](data[1:])

    seeds = [bytes([step]) + seed for seed in SEEDS for step in range(len(steps))]
    yield Target(mutate.data(seeds, WORDS), take, (rmcp.Malformed,))
