"""A minute of fuzzing; `make fuzz` goes on for longer. And the harness itself: it must find what is
planted."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Target, feed, replay
from tests.fuzz.targets import TARGETS

INPUTS = 1500


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the product says of each bad input."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_unexpected(name: str, tmp_path: Path) -> None:
    with TARGETS[name](tmp_path) as target:
        report = feed(name, target, INPUTS, seed=7)
    print(json.dumps(report.line()))
    assert not report.failures, "".join(
        f"{why}\n{data[:2000]!r}\n" for data, why in report.failures
    )
    assert report.well and report.inputs == INPUTS


def numbers(chance: random.Random) -> bytes:
    return bytes([chance.randrange(256)])


def test_an_exception_is_found_once_for_each_place_and_can_be_replayed() -> None:
    def take(data: bytes) -> None:
        if data[0] > 128:
            raise ValueError("refused as it should be")
        if data[0] == 7:
            raise KeyError("the planted defect")
        assert data[0] != 8, "another"

    target = Target(numbers, take, (ValueError,))
    report = feed("planted", target, 4000, seed=1)
    assert not report.well and report.refused > 1000
    assert {data for data, _ in report.failures} == {b"\7", b"\10"} and report.unexpected > 2
    assert "the planted defect" in replay(target, b"\7") and replay(target, b"\x09") == ""


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SLOWEST_S", 0.05)

    def take(data: bytes) -> None:
        end = time.monotonic() + 20.0
        while data[0] == 7 and time.monotonic() < end:
            pass

    report = feed("planted", Target(numbers, take), 1000, seed=1)
    assert (
        report.unexpected and "takes longer" in report.failures[0][1] and report.slowest_ms < 10_000
    )


def test_growth_is_found() -> None:
    kept: list[bytes] = []
    report = feed(
        "planted", Target(numbers, lambda data: kept.append(data * 100_000)), 1000, seed=1
    )
    assert report.growth_mb > harness.GROWTH_MB and not report.well


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "dhcp", "--inputs", "2000", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    assert (
        done.returncode == 0
        and (said["target"], said["inputs"], said["unexpected"]) == ("dhcp", 2000, 0)
        and said["refused"]
    )
    (tmp_path / "input").write_bytes(b"\0" * 300)
    assert (
        subprocess.run(
            [*command[:4], "--replay", str(tmp_path / "input")], check=False, capture_output=True
        ).returncode
        == 0
    )
