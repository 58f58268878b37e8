"""A line of code that cannot stop fills no disk: what it says is counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from layercake.base.logs.lines import AT_ONCE, LINE, PERIOD_S, Lines, Repeats


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def later() -> list[tuple[float, Callable[[], None]]]:
    return []


@pytest.fixture
def log(said: list[str], later: list[tuple[float, Callable[[], None]]]) -> logging.Logger:
    """A logger behind the filter, whose timers are a test's to let off."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(Repeats(handler.emit, lambda seconds, what: later.append((seconds, what))))
    found = logging.Logger("test")
    found.addHandler(handler)
    return found


def flood(log: logging.Logger, count: int) -> None:
    for number in range(count):
        log.error("socket.accept() out of system resource %d", number)


def test_a_flood_is_a_few_lines_and_a_count(
    log: logging.Logger, said: list[str], later: list[tuple[float, Callable[[], None]]]
) -> None:
    flood(log, 323_000)
    log.error("something else")
    assert len(said) == AT_ONCE + 1 and said[-1] == "something else"
    ((seconds, over),) = later
    assert seconds == PERIOD_S
    over()
    assert said[-1].startswith(f"{323_000 - AT_ONCE} more of these") and said[-1].endswith(
        "resource 322999"
    )
    flood(log, AT_ONCE + 1)
    assert len(said) == 2 * AT_ONCE + 2 and len(later) == 2, "then it may speak again"


def test_another_error_at_the_same_place_is_heard(log: logging.Logger, said: list[str]) -> None:
    for error in [*[ValueError("a")] * 100, KeyError("b")]:
        try:
            raise error
        except (ValueError, KeyError):
            log.exception("it failed")
    assert len(said) == AT_ONCE + 1


def test_a_line_has_an_end() -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "a" * 1_000_000 + "b", None, None)
    text = Lines("%(message)s").format(record)
    assert len(text) < LINE + 10 and text.startswith("aaa") and text.endswith("b")
