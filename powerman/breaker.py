"""One BMC's rate limit and circuit breaker. Pure: the clock is an argument, in seconds of any
steady clock.

A BMC that does not answer is left alone for a while, then one operation may try; each further
failure doubles the rest. A BMC that answers gets a token bucket, because many answer slowly and
lock up under load. A refused login costs more than silence: accounts lock after a few in a row.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from layercake.kraken.backoff import backoff
from powerman.settings import Limits

LOGIN_RESTS = 30
"""So many times as long as it may otherwise be is the longest rest after refused logins."""


class Circuit(enum.Enum):
    """Whether operations may go to a BMC."""

    CLOSED = "answers"
    OPEN = "left alone"
    TRYING = "one try under way"


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one BMC's breaker; every method returns a new one."""

    limits: Limits
    tokens: float
    at: float  # when `tokens` was right
    circuit: Circuit = Circuit.CLOSED
    failures: int = 0  # in a row
    refusals: int = 0  # of logins, since it answered last
    retry_at: float = 0.0  # when OPEN: the next try

    @classmethod
    def fresh(cls, limits: Limits, now: float) -> Breaker:
        """The breaker of a BMC that nothing is known about."""
        return cls(limits, limits.burst, now)

    def wait_s(self, now: float) -> float:
        """How long an operation has to wait; 0 if it may go now. While another one is trying, as
        long as the first rest."""
        if self.circuit is Circuit.OPEN:
            longest = LOGIN_RESTS * self.limits.rest_max_s  # the sum may have been rounded up
            return min(longest, max(0.0, self.retry_at - now))
        if self.circuit is Circuit.TRYING:
            return self.limits.rest_s
        missing = 1.0 - self._filled(now)
        return max(0.0, missing / self.limits.rate_per_s)

    def admitted(self, now: float) -> Breaker:
        """An operation goes ahead, for which `wait_s` was 0."""
        circuit = Circuit.TRYING if self.circuit is Circuit.OPEN else self.circuit
        return replace(self, tokens=max(0.0, self._filled(now) - 1.0), at=now, circuit=circuit)

    def answered(self, now: float) -> Breaker:
        """The BMC answered, be it with a refusal."""
        return replace(
            self,
            circuit=Circuit.CLOSED,
            failures=0,
            refusals=0,
            retry_at=0.0,
            tokens=self._filled(now),
            at=now,
        )

    def unanswered(self, now: float) -> Breaker:
        """The BMC did not answer."""
        failures = self.failures + 1
        if failures < self.limits.failures and self.circuit is Circuit.CLOSED:
            return replace(self, failures=failures)
        rest = backoff(
            failures - self.limits.failures + 1, self.limits.rest_s, self.limits.rest_max_s
        )
        return replace(self, circuit=Circuit.OPEN, failures=failures, retry_at=now + rest)

    def refused(self, now: float) -> Breaker:
        """The BMC refused the login. It may have been starting, so the next try comes soon; each
        further one waits twice as long as the one before it, from `rest_max_s` on, for accounts
        lock after three to five in a row (AccountLockoutThreshold of Redfish's AccountService)."""
        refusals = self.refusals + 1
        most = self.limits.rest_max_s
        rest = (
            self.limits.rest_s if refusals == 1 else backoff(refusals - 1, most, LOGIN_RESTS * most)
        )
        return replace(self, circuit=Circuit.OPEN, refusals=refusals, retry_at=now + rest)

    def abandoned(self, now: float) -> Breaker:
        """An operation was cancelled before it could tell anything; another one may try."""
        return (
            replace(self, circuit=Circuit.OPEN, retry_at=now)
            if self.circuit is Circuit.TRYING
            else self
        )

    def _filled(self, now: float) -> float:
        return min(
            self.limits.burst, self.tokens + max(0.0, now - self.at) * self.limits.rate_per_s
        )
