"""What an agent says and believes, and when it speaks."""

from __future__ import annotations

import pytest

from layercake.kraken.errors import WireError
from layercake.kraken.wire import Datagram, Kind, decode, encode
from minos.agent.head_link.sync import Called, HelloTimer, NewEpoch, SyncCodec, Wanted

NODE, KEY, LAYOUT = bytes(range(16)), b"k" * 32, b"lay1"


def codec(epoch: int = 5) -> SyncCodec:
    return SyncCodec(NODE, 77, KEY, epoch, LAYOUT)


def from_head(
    kind: Kind,
    sequence: int,
    *,
    epoch: int = 5,
    revision: int = 9,
    session: int = 77,
    key: bytes = KEY,
    node: bytes = NODE,
    known: int = 1,
) -> bytes:
    return encode(
        Datagram(kind, node, session, epoch, sequence, revision, known, LAYOUT, 0, 0), key
    )


def test_hello_carries_state_and_revision() -> None:
    data = codec().hello(1000, revision=4, changes=2, mask=0xF0, state=0x30)
    said = decode(data, KEY)
    assert (said.kind, said.cfg_revision, said.dsc_revision, said.mask, said.state) == (
        Kind.HELLO,
        4,
        2,
        0xF0,
        0x30,
    )
    assert said.sequence == 1000


def test_sequence_numbers_rise_even_if_the_clock_stands() -> None:
    c = codec()
    numbers = [
        decode(c.hello(1000, revision=1, changes=0, mask=0, state=0), KEY).sequence
        for _ in range(3)
    ]
    assert numbers == [1000, 1001, 1002]


def test_desired_is_believed_once() -> None:
    c, data = codec(), from_head(Kind.DESIRED, 50)
    assert c.receive(data) == Wanted(9)
    with pytest.raises(WireError, match="used before"):
        c.receive(data)
    with pytest.raises(WireError, match="used before"):
        c.receive(from_head(Kind.DESIRED, 49))


def test_a_probe_is_told_from_news() -> None:
    assert codec().receive(from_head(Kind.DESIRED, 1, known=0)) == Wanted(9, probe=True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LC",
        from_head(Kind.DESIRED, 1, key=b"x" * 32),
        from_head(Kind.DESIRED, 1, session=78),
        from_head(Kind.DESIRED, 1, epoch=4),
        from_head(Kind.DESIRED, 1, node=bytes(16)),
        from_head(Kind.HELLO, 1),
        from_head(Kind.CHALLENGE, 1, epoch=6),
        from_head(Kind.DESIRED, 1)[:-1] + b"\0",
    ],
)
def test_what_is_forged_or_not_for_us_is_refused(data: bytes) -> None:
    c = codec()
    with pytest.raises(WireError):
        c.receive(data)
    assert c.epoch == 5


def test_a_challenge_is_believed_only_as_the_answer_to_our_hello() -> None:
    c = codec()
    number = decode(c.hello(1000, revision=1, changes=0, mask=0, state=0), KEY).sequence
    assert c.receive(from_head(Kind.CHALLENGE, number, epoch=6)) == NewEpoch(6, 9)
    assert c.epoch == 6
    with pytest.raises(WireError):
        c.receive(from_head(Kind.CHALLENGE, number, epoch=5))
    assert c.epoch == 6
    assert c.receive(from_head(Kind.DESIRED, 1, epoch=6)) == Wanted(9), "the new epoch counts anew"


def test_hello_is_repeated_soon_until_it_is_answered() -> None:
    timer, now, waits = HelloTimer(10.0), 100.0, []
    for _ in range(6):
        timer.hello_sent(now, 0.5)
        waits.append(timer.due - now)
        now = timer.due
    assert waits == [0.5, 1.0, 2.0, 4.0, 10.0, 10.0]
    timer.answered(now, 0.0)
    assert timer.due - now == 9.0
    timer.hello_sent(now, 0.5)
    assert timer.due - now == 0.5
    timer.answered(now, 1.0)
    assert timer.due - now == pytest.approx(11.0)
    timer.now()
    assert timer.due < now


def test_a_head_that_began_anew_calls_once_and_is_not_believed_yet() -> None:
    c = codec()
    with pytest.raises(Called):
        c.receive(from_head(Kind.DESIRED, 1, epoch=6))
    with pytest.raises(WireError) as again:
        c.receive(from_head(Kind.DESIRED, 2, epoch=6))
    assert not isinstance(again.value, Called), "replayed, it has nobody say anything"
    with pytest.raises(Called):
        c.receive(from_head(Kind.DESIRED, 1, epoch=7))
    with pytest.raises(WireError, match="tag"):
        c.receive(from_head(Kind.DESIRED, 1, epoch=8, key=b"x" * 32))
    assert c.receive(from_head(Kind.DESIRED, 3)) == Wanted(9, probe=False)
