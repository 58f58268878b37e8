"""The datagram codec: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.kraken.errors import WireError
from layercake.kraken.wire import (
    FRESH,
    NODE,
    SIZE,
    TELLS,
    Datagram,
    Kind,
    ReplayGuard,
    answer,
    decode,
    encode,
    genuine,
    peek,
    tells,
)

KEY = bytes(range(32))
SAMPLE = Datagram(Kind.HELLO, b"n" * 16, 7, 8, 9, 10, 11, b"abcd", (1 << 128) - 1, 0x1234)

u64 = st.integers(0, (1 << 64) - 1)
u128 = st.integers(0, (1 << 128) - 1)
datagrams = st.builds(
    Datagram,
    st.sampled_from(Kind),
    st.binary(min_size=16, max_size=16),
    u64,
    u64,
    u64,
    u64,
    u64,
    st.binary(min_size=4, max_size=4),
    u128,
    u128,
)


@given(datagrams, st.binary(min_size=16, max_size=64))
def test_round_trip(datagram: Datagram, key: bytes) -> None:
    data = encode(datagram, key)
    assert len(data) == SIZE < 200
    assert peek(data) == (datagram.node, datagram.session)
    assert decode(data, key) == datagram


def test_bytes_are_fixed() -> None:
    """The wire form is a contract with nodes that run an older agent: it changes only along with
    the version."""
    data = encode(SAMPLE, KEY)
    body = (
        b"LC\x01\x01"
        + b"n" * 16
        + b"".join(n.to_bytes(8, "big") for n in (7, 8, 9, 10, 11))
        + b"abcd"
        + b"\xff" * 16
        + (0x1234).to_bytes(16, "big")
    )
    assert data == body + hashlib.blake2b(body, key=KEY, digest_size=16).digest()


@settings(max_examples=400)
@given(st.integers(0, SIZE * 8 - 1))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    data = bytearray(encode(SAMPLE, KEY))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        decode(bytes(data), KEY)


@settings(max_examples=400)
@given(st.binary(max_size=300))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data, KEY)


@settings(max_examples=300)
@given(st.binary(min_size=SIZE - 4, max_size=SIZE - 4))
def test_noise_behind_a_good_start_is_refused(noise: bytes) -> None:
    with pytest.raises(WireError):
        decode(b"LC\x01\x02" + noise, KEY)


@pytest.mark.parametrize("size", [0, 1, 27, SIZE - 17, SIZE - 16, SIZE - 1])
def test_truncated_is_refused(size: int) -> None:
    for read in (peek, lambda d: decode(d, KEY)):
        with pytest.raises(WireError, match="bytes"):
            read(encode(SAMPLE, KEY)[:size])


def test_extra_bytes_are_refused() -> None:
    with pytest.raises(WireError, match="bytes"):
        peek(encode(SAMPLE, KEY) + b"\0")


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [(0, 0x4D, "not one of"), (2, 2, "version 2"), (3, 0, "kind 0"), (3, 4, "kind 4")],
)
def test_header_is_checked_before_any_key_is_tried(at: int, value: int, why: str) -> None:
    data = bytearray(encode(SAMPLE, KEY))
    data[at] = value
    with pytest.raises(WireError, match=why):
        peek(bytes(data))


def test_other_key_is_refused() -> None:
    with pytest.raises(WireError, match="tag"):
        decode(encode(SAMPLE, KEY), KEY[::-1])


@pytest.mark.parametrize("key", [b"", b"short"])
def test_weak_keys_are_refused(key: bytes) -> None:
    with pytest.raises(WireError, match="key"):
        encode(SAMPLE, key)
    with pytest.raises(WireError, match="key"):
        decode(encode(SAMPLE, KEY), key)


@pytest.mark.parametrize(
    "change",
    [
        {"session": 1 << 64},
        {"session": -1},
        {"mask": 1 << 128},
        {"state": -1},
        {"node": b"x"},
        {"layout": b"abcde"},
    ],
)
def test_fields_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(WireError, match="cannot encode"):
        encode(dataclasses.replace(SAMPLE, **change), KEY)  # type: ignore[arg-type]  # wrong values are the point


@given(st.lists(u64, max_size=50))
def test_replay_guard_takes_only_rising_numbers(numbers: list[int]) -> None:
    guard = ReplayGuard()
    best = -1
    for number in numbers:
        assert guard.accept(number) is (number > best)
        assert not guard.accept(number)
        best = max(best, number)


@given(datagrams, st.binary(min_size=16, max_size=64))
def test_what_is_taken_unread_is_what_encode_and_decode_say(datagram: Datagram, key: bytes) -> None:
    data, d = encode(datagram, key), datagram
    assert genuine(data, key) and not genuine(data[:-1] + bytes((data[-1] ^ 1,)), key)
    assert (data[NODE], int.from_bytes(data[FRESH], "big")) == (d.node, d.sequence)
    assert data[TELLS] == tells(d.cfg_revision, d.dsc_revision, d.layout, d.mask, d.state)
    desired = dataclasses.replace(d, kind=Kind.DESIRED)
    assert answer(data, d.sequence, data[TELLS], key) == encode(desired, key)
