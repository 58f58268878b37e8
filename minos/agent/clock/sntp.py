"""Asks a time server (RFC 4330)."""

from __future__ import annotations

import os
import socket
import time
from typing import NamedTuple

from layercake.base.packets import ntp

QUESTIONS = 4
"""How often one server is asked in a round: the answer with the shortest way is the best."""

TIMEOUT_S = 1.0


class Sample(NamedTuple):
    """How far a server's clock is ahead of ours, and the time that the packets took, in seconds."""

    server: str
    ahead_s: float
    delay_s: float


def query_server(server: str, port: int = ntp.PORT) -> Sample | None:
    """The best of some answers of a server, None if none comes. `server` is an IP address."""
    samples = [
        sample for sample in (_once(server, port) for _ in range(QUESTIONS)) if sample is not None
    ]
    return min(samples, key=lambda sample: sample.delay_s, default=None)


def _once(server: str, port: int) -> Sample | None:
    mark = int.from_bytes(os.urandom(8), "big")
    with socket.socket(
        socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM
    ) as sock:
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect((server, port))  # then no other host's answers are heard
            asked_at = time.time()
            began = time.monotonic()
            sock.send(ntp.question(mark))
            data = sock.recv(512)
        except OSError:
            return None
        round_trip_s = time.monotonic() - began
        answer = ntp.reply(data, mark)
    return (
        None
        if answer is None
        else Sample(server, *ntp.offset(asked_at, answer, asked_at + round_trip_s))
    )
