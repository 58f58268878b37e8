"""The packets of SNTP."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from layercake.base.packets import ntp

TIMES = st.floats(0.0, 4_000_000_000.0)


@given(TIMES)
def test_a_time_is_the_same_after_its_way(moment: float) -> None:
    """Until 2096, beyond the end of the first era in 2036."""
    assert abs(ntp.seconds(ntp.stamp(moment)) - moment) < 1e-6


def test_the_first_era_ends_in_2036() -> None:
    assert ntp.seconds(0) == 2_085_978_496.0  # 2036-02-07 06:28:16 UTC
    assert ntp.seconds(0xFFFFFFFF << 32) == 2_085_978_495.0


@given(st.integers(0, 2**64 - 1), TIMES, st.integers(1, 15))
def test_an_answer_belongs_to_its_question(mark: int, moment: float, stratum: int) -> None:
    question = ntp.asked(ntp.question(mark))
    assert question is not None and (question.mark, question.version) == (mark, 4)
    data = ntp.answer(question, moment, moment + 0.001, stratum)
    assert len(data) == len(ntp.question(mark)) == 48
    said = ntp.reply(data, mark)
    assert said is not None and said.stratum == stratum and abs(said.received - moment) < 1e-6
    assert ntp.reply(data, mark ^ 1) is None, "it answers another question"


@given(st.binary(max_size=100))
def test_nothing_else_is_taken_for_either(data: bytes) -> None:
    ntp.asked(data)
    assert ntp.reply(data, 7) is None or struct.unpack_from("!Q", data, 24)[0] == 7


def test_who_does_not_know_the_time_is_not_heard() -> None:
    question = ntp.asked(ntp.question(9))
    assert question is not None
    good = ntp.answer(question, 1.8e9, 1.8e9, 2)
    assert ntp.reply(good, 9) is not None
    assert ntp.reply(bytes((good[0] | 0xC0,)) + good[1:], 9) is None, (
        "it says that it is not synchronized"
    )
    assert ntp.reply(good[:1] + b"\0" + good[2:], 9) is None, "kiss of death (RFC 5905 section 7.4)"
    assert ntp.asked(good) is None, "an answer gets no answer"


def test_the_way_back_counts_as_long_as_the_way_there() -> None:
    assert ntp.offset(100.0, ntp.Reply(110.5, 110.75, 1), 101.25) == (10.0, 1.0)
