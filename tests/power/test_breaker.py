"""A BMC's breaker: pure, on a made-up clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from powerman.breaker import Breaker, Circuit
from powerman.settings import Limits

LIMITS = Limits(rate_per_s=2.0, burst=3.0, failures=2, rest_s=4.0, rest_max_s=20.0)


def _opened(now: float = 100.0) -> Breaker:
    breaker = Breaker.fresh(LIMITS, now)
    return breaker.admitted(now).unanswered(now).admitted(now).unanswered(now)


def test_one_unanswered_operation_opens_nothing() -> None:
    breaker = Breaker.fresh(LIMITS, 0.0).admitted(0.0).unanswered(0.0)
    assert breaker.circuit is Circuit.CLOSED
    assert breaker.wait_s(0.0) == 0.0


def test_two_in_a_row_leave_the_bmc_alone() -> None:
    breaker = _opened(100.0)
    assert breaker.circuit is Circuit.OPEN
    assert breaker.wait_s(101.0) == 3.0
    assert breaker.wait_s(104.0) == 0.0


def test_an_answer_in_between_starts_the_count_again() -> None:
    breaker = Breaker.fresh(LIMITS, 0.0).unanswered(0.0).answered(0.0).unanswered(0.0)
    assert breaker.circuit is Circuit.CLOSED


def test_only_one_tries_after_the_rest() -> None:
    trying = _opened(100.0).admitted(104.0)
    assert trying.circuit is Circuit.TRYING
    assert trying.wait_s(104.0) > 0.0
    assert trying.answered(104.1).circuit is Circuit.CLOSED


def test_each_further_failure_doubles_the_rest_up_to_its_limit() -> None:
    breaker, now, rests = _opened(0.0), 0.0, []
    for _ in range(5):
        rests.append(breaker.wait_s(now))
        now += rests[-1]
        breaker = breaker.admitted(now).unanswered(now)
    assert rests == [4.0, 8.0, 16.0, 20.0, 20.0]


def test_refused_logins_come_further_and_further_apart() -> None:
    breaker = Breaker.fresh(LIMITS, 0.0)
    now = 0.0
    rests = []
    for _ in range(9):
        breaker = breaker.admitted(now).refused(now)
        rests.append(breaker.wait_s(now))
        now += rests[-1]
    assert rests == [4.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]
    assert breaker.admitted(now).answered(now).wait_s(now) == 0.0


def test_one_that_was_silent_and_refuses_a_login_as_it_starts_is_tried_again_soon() -> None:
    breaker = Breaker.fresh(LIMITS, 0.0)
    now = 0.0
    for _ in range(12):
        breaker = breaker.admitted(now).unanswered(now)
        now += breaker.wait_s(now)
    assert breaker.admitted(now).refused(now).wait_s(now) == LIMITS.rest_s


def test_a_cancelled_try_lets_another_one_try_at_once() -> None:
    assert _opened(0.0).admitted(4.0).abandoned(4.5).wait_s(4.5) == 0.0


def test_a_burst_is_allowed_and_then_the_rate_holds() -> None:
    breaker = Breaker.fresh(LIMITS, 0.0)
    for _ in range(3):
        assert breaker.wait_s(0.0) == 0.0
        breaker = breaker.admitted(0.0)
    assert breaker.wait_s(0.0) == 0.5
    assert breaker.wait_s(0.5) == 0.0


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.booleans()), max_size=60))
def test_the_rate_is_never_exceeded_and_no_wait_is_for_ever(
    steps: list[tuple[float, bool]],
) -> None:
    breaker, now, admitted = Breaker.fresh(LIMITS, 0.0), 0.0, 0
    for pause, works in steps:
        now += pause
        wait = breaker.wait_s(now)
        assert 0.0 <= wait <= LIMITS.rest_max_s
        now += wait
        breaker = breaker.admitted(now)
        admitted += 1
        breaker = breaker.answered(now) if works else breaker.unanswered(now)
    assert admitted <= LIMITS.burst + LIMITS.rate_per_s * now + 1e-6
