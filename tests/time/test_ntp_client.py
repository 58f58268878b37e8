"""How a node keeps its clock. No network, no clock of this machine."""

from __future__ import annotations

from typing import Any

from layercake.kraken.events import EventKind, Severity
from minos.agent.clock.ntp_client import FIRST_S, MOST_S, NtpClient
from minos.agent.clock.sntp import Sample


class Site:
    """A clock, time servers that say how far it is off, and what was told."""

    def __init__(self, *servers: str) -> None:
        self.ahead: dict[str, float | None] = dict.fromkeys(servers, 0.0)
        self.told: list[tuple[str, str]] = []
        self.severities: list[Severity] = []
        self.slewed: list[float] = []
        self.stepped: list[float] = []
        self.refuses = False
        self.keeper = NtpClient(
            servers, self._event, ask=self._ask, slew=self._slew, step=self._step
        )

    def _ask(self, server: str) -> Sample | None:
        ahead = self.ahead[server]
        return None if ahead is None else Sample(server, ahead, 0.002)

    def _slew(self, ahead_s: float, every_s: float, error_s: float) -> None:
        if self.refuses:
            raise PermissionError(1, "Operation not permitted")
        self.slewed.append(ahead_s)

    def _step(self, ahead_s: float) -> None:
        self.stepped.append(ahead_s)

    def _event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        self.told.append((kind.name, text))
        self.severities.append(severity or kind.severity)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]


def test_a_clock_that_runs_well_is_asked_about_less_and_less() -> None:
    site = Site("10.0.0.1")
    waits = [site.keeper.round() for _ in range(8)]
    assert waits == [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, MOST_S, MOST_S]
    assert site.kinds == ["node.clock"], "what has not changed is told once"
    site.ahead["10.0.0.1"] = 0.05
    assert site.keeper.round() == FIRST_S and site.slewed[-1] == 0.05
    assert site.told[-1] == ("node.clock", "the clock was -50.0 ms off 10.0.0.1")


def test_a_clock_that_is_far_off_is_set() -> None:
    site = Site("10.0.0.1")
    site.ahead["10.0.0.1"] = -2.5
    site.keeper.round()
    assert site.stepped == [-2.5] and site.slewed == [0.0], (
        "the kernel is told that it is right now"
    )
    assert site.told[0] == ("node.clock-set", "the clock was +2.500 s off 10.0.0.1, and is set")


def test_that_a_machine_keeps_whole_seconds_is_no_news() -> None:
    site = Site("10.0.0.1")
    site.ahead["10.0.0.1"] = -0.8
    site.keeper.round()
    site.keeper.round()
    assert site.kinds[::2] == ["node.clock-set"] * 2
    assert site.severities[::2] == [Severity.DEBUG, Severity.INFO], (
        "once: it was set, and is off again"
    )


def test_a_server_that_lies_by_a_year_is_not_believed_and_said_once() -> None:
    site = Site("10.0.0.1", "10.0.0.2")
    site.ahead |= {"10.0.0.1": 31_536_000.0, "10.0.0.2": 0.003}
    for _ in range(3):
        site.keeper.round()
    assert site.slewed == [0.003] * 3 and not site.stepped
    assert site.kinds.count("node.time-refused") == 1 and "+31536000 s" in site.told[0][1]


def test_one_of_three_that_is_wrong_is_outvoted() -> None:
    site = Site("10.0.0.1", "10.0.0.2", "10.0.0.3")
    site.ahead |= {"10.0.0.1": 0.001, "10.0.0.2": 200.0, "10.0.0.3": 0.002}
    site.keeper.round()
    assert site.slewed == [0.002] and not site.stepped


def test_a_node_that_nobody_answers_says_so_once_and_goes_on_asking() -> None:
    site = Site("10.0.0.1")
    site.ahead["10.0.0.1"] = None
    assert [site.keeper.round() for _ in range(5)] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert site.told == [("node.no-time", "the clock is kept by nobody: none of 10.0.0.1 answers")]
    site.ahead["10.0.0.1"] = 0.0
    assert site.keeper.round() == 64.0
    assert site.kinds == ["node.no-time", "node.clock"]


def test_a_clock_that_cannot_be_kept_is_said_once() -> None:
    site = Site("10.0.0.1")
    site.refuses = True
    for _ in range(3):
        site.keeper.round()
    assert site.kinds.count("node.no-time") == 1 and "Operation not permitted" in site.told[0][1]


def test_a_head_that_was_started_again_is_told_anew() -> None:
    site = Site("10.0.0.1")
    site.keeper.round()
    site.keeper.report_again()
    site.keeper.round()
    assert site.kinds == ["node.clock", "node.clock"]
