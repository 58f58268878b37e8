"""The end of what a program says, in bounded memory and time."""

from __future__ import annotations

import subprocess
import time

import pytest

from layercake.base.logs.child_output import end_of_output


def run(script: str, seconds: float = 30.0, keep: int = 100, most: int = 0) -> tuple[bytes, bool]:
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
        try:
            return end_of_output(process, seconds, keep, most)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("printf a; printf b", b"ab"),
        ("seq 1000000", b"999999\n1000000\n"),
        ("exit 3", b""),
        ("printf a; exec >&-; sleep 0.1", b"a"),
        ("printf a; sleep 600 & exit 0", b"a"),
    ],
)
def test_the_end_is_kept(script: str, end: bytes) -> None:
    found, late = run(script)
    assert found[-len(end) or 100 :] == end and len(found) <= 100 and not late


def test_one_that_says_too_much_or_nothing_is_left() -> None:
    began = time.monotonic()
    assert run("yes", most=10 << 20)[1]
    assert run("printf a; sleep 600", seconds=0.5) == (b"a", True)
    assert time.monotonic() - began < 60.0
