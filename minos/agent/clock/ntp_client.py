"""Keeps the node's clock: asks the time servers of its network again and again, and follows what
most of them say.

The head's time, by which the clock was set before the network came up, is what a server is measured
by: one that is far from it is not believed, and said.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from layercake.kraken.events import Severity
from minos.agent.clock import kernel
from minos.agent.clock.sntp import Sample, query_server
from minos.agent.head_link.outbox import EventSink
from minos.events import CLOCK, CLOCK_SET, NO_TIME, TIME_REFUSED

FIRST_S = 16.0
MOST_S = 1024.0
"""Between two rounds at first, and when the clock runs well."""

WELL_S = 0.01
"""A clock that is no further off is asked about half as often next time, to the most."""

STEP_S = 0.128
"""What is further off is set and not slewed (RFC 5905 appendix A.5.5.6, STEPT)."""

USUAL_S = 2.0
"""What a clock may be off at first without being worth a word: a machine keeps whole seconds while
it is off."""

BELIEVED_S = 300.0
"""What a server may differ from this clock, which the head set: as far as minos.init leaves it
alone."""

TOLD_S = 0.005
"""The head is told again when the clock was found off by so much more or less than it knows."""

SILENT = 3
"""Rounds without any answer before that is told."""

AGAIN_S = 1.0
SILENT_MOST = 10
"""What nobody answers is asked again after 2 s, then after 4 s, and so on: a head that was started
again is there soon."""


class NtpClient:
    """`servers` are addresses. `slew` and `step` change the clock, `ask` asks one server."""

    def __init__(
        self,
        servers: Sequence[str],
        event: EventSink,
        *,
        ask: Callable[[str], Sample | None] = query_server,
        slew: Callable[[float, float, float], None] = kernel.slew,
        step: Callable[[float], None] = kernel.step,
    ) -> None:
        self._servers = tuple(servers)
        self._event = event
        self._query = ask
        self._slew = slew
        self._step = step
        self._every = FIRST_S
        self._silent = 0
        self._refused: set[str] = set()
        self._told: Sample | None = None
        self._failed = ""
        self._again = threading.Event()

    def start(self) -> None:
        """Keeps the clock from now on, on a thread of its own."""
        if self._servers:
            threading.Thread(target=self._run, name="clock", daemon=True).start()

    def report_again(self) -> None:
        """The head has forgotten how the clock is: it is told after the next round, which is
        now."""
        self._told = None
        self._again.set()

    def _run(self) -> None:
        while True:
            wait = self.round()
            self._again.wait(wait)
            self._again.clear()

    def round(self) -> float:
        """Asks all servers once, and follows them. Returns the seconds until the next round."""
        samples = [sample for sample in map(self._query, self._servers) if sample is not None]
        believed = [sample for sample in samples if self._believes(sample)]
        if not believed:
            self._nobody(bool(samples))
            return self._every
        self._silent = 0
        chosen = sorted(believed, key=lambda sample: sample.ahead_s)[(len(believed) - 1) // 2]
        self._follow(chosen)
        off = abs(chosen.ahead_s)
        self._every = min(MOST_S, self._every * 2) if off <= WELL_S else FIRST_S
        if (
            self._told is None
            or self._told.server != chosen.server
            or abs(self._told.ahead_s - chosen.ahead_s) > TOLD_S
        ):
            self._told = chosen
            self._event(
                CLOCK,
                f"the clock was {chosen.ahead_s * -1e3:+.1f} ms off {chosen.server}",
                server=chosen.server,
                off_ms=round(chosen.ahead_s * -1e3, 3),
                delay_ms=round(chosen.delay_s * 1e3, 3),
            )
        return self._every

    def _believes(self, sample: Sample) -> bool:
        if abs(sample.ahead_s) <= BELIEVED_S:
            self._refused.discard(sample.server)
            return True
        if sample.server not in self._refused:
            self._refused.add(sample.server)
            self._event(
                TIME_REFUSED,
                f"{sample.server} says a time that is {sample.ahead_s:+.0f} s from this clock, "
                "which the "
                "head has set: it is not believed",
                server=sample.server,
                ahead_s=round(sample.ahead_s, 3),
            )
        return False

    def _nobody(self, heard: bool) -> None:
        self._silent += 1
        self._every = min(MOST_S, AGAIN_S * 2 ** min(self._silent, SILENT_MOST))
        if self._silent == SILENT:
            why = "says a time that can be believed" if heard else "answers"
            self._told = None
            self._event(
                NO_TIME, f"the clock is kept by nobody: none of {', '.join(self._servers)} {why}"
            )

    def _follow(self, chosen: Sample) -> None:
        try:
            if abs(chosen.ahead_s) > STEP_S:
                self._step(chosen.ahead_s)
                usual = self._told is None and abs(chosen.ahead_s) < USUAL_S
                self._event(
                    CLOCK_SET,
                    f"the clock was {chosen.ahead_s * -1:+.3f} s off {chosen.server}, and is set",
                    Severity.DEBUG if usual else None,
                )
            self._slew(
                chosen.ahead_s if abs(chosen.ahead_s) <= STEP_S else 0.0,
                self._every,
                chosen.delay_s / 2,
            )
        except OSError as error:
            if self._failed != (text := f"cannot keep the clock: {error.strerror}"):
                self._failed = text
                self._event(NO_TIME, text)
