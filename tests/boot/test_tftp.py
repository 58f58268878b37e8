"""TFTP: the codec, the terms, and the transfer as a state machine."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxe.packets.tftp import (
    Code,
    Op,
    Terms,
    TftpError,
    build_error,
    build_oack,
    negotiate,
    parse_answer,
    parse_request,
)
from pxe.tftp_transfer import Phase, Transfer

PLAIN = Terms(512, 1, 1.0, ())


def rrq(*fields: bytes, op: int = 1) -> bytes:
    return op.to_bytes(2, "big") + b"".join(f + b"\0" for f in fields)


def receive(transfer: Transfer, window: int, lose: set[int] = frozenset()) -> tuple[bytes, int]:  # type: ignore[assignment]  # an empty default
    """A client that acknowledges whole windows; loses the packets with these running numbers.
    Returns data and packets seen."""
    got = b""
    expected = 1
    seen = 0
    now = 0.0
    waiting = transfer.begin(now)
    while transfer.phase is Phase.RUNNING:
        in_order = 0
        oack = False
        for packet in transfer.split(waiting):
            seen += 1
            if seen in lose:
                continue
            if packet[1] == Op.OACK:
                oack = True
            elif int.from_bytes(packet[2:4], "big") == expected & 0xFFFF:
                got += packet[4:]
                expected += 1
                in_order += 1
        if oack:
            waiting = transfer.answer(Op.ACK, 0, now)
        elif in_order:
            waiting = transfer.answer(Op.ACK, (expected - 1) & 0xFFFF, now)
        else:
            now += 1.0
            waiting = transfer.timeout(now) if transfer.due(now) else b""
    return got, seen


def test_request_with_options() -> None:
    request = parse_request(
        rrq(b"snponly.efi", b"OCTET", b"BlkSize", b"1468", b"tsize", b"0", b"windowsize", b"4")
    )
    assert request.name == "snponly.efi"
    assert negotiate(request.options, 99) == Terms(
        1468, 4, 1.0, (("blksize", "1468"), ("tsize", "99"), ("windowsize", "4"))
    )


def test_terms_are_bounded_and_nonsense_is_left_out() -> None:
    assert negotiate({"blksize": "65464", "windowsize": "64", "timeout": "3"}, 0) == Terms(
        1468, 16, 3.0, (("blksize", "1468"), ("windowsize", "16"), ("timeout", "3"))
    )
    for options in (
        {"blksize": "abc"},
        {"blksize": "7"},
        {"blksize": "-1"},
        {"blksize": ""},
        {"blksize": "9" * 40},
        {"blksize": "1e3"},
        {"timeout": "0"},
        {"timeout": "256"},
        {"windowsize": "0"},
        {"windowsize": "65536"},
        {"multicast": ""},
    ):
        assert negotiate(options, 1) == PLAIN


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.ILLEGAL),
        (b"\0\1", Code.ILLEGAL),
        (rrq(b"a"), Code.ILLEGAL),
        (rrq(b"a", b"octet")[:-1], Code.ILLEGAL),
        (rrq(b"a", b"octet", b"blksize"), Code.ILLEGAL),
        (rrq(b"a", b"octet", op=9), Code.ILLEGAL),
        (rrq(b"a", b"octet", op=2), Code.ACCESS),
        (rrq(b"a", b"netascii"), Code.UNDEFINED),
        (rrq(b"", b"octet"), Code.NOT_FOUND),
        (rrq(b"a" * 129, b"octet"), Code.NOT_FOUND),
        (rrq(b"a" * 600, b"octet"), Code.ILLEGAL),
        (rrq("ä".encode(), b"octet"), Code.ILLEGAL),
        (rrq(b"\xff\xfe", b"octet"), Code.ILLEGAL),
        (rrq(b"a\n", b"octet"), Code.ILLEGAL),
        (rrq(b"a", b"octet", b"blk\x01", b"1"), Code.ILLEGAL),
    ],
)
def test_bad_requests(raw: bytes, code: Code) -> None:
    with pytest.raises(TftpError) as caught:
        parse_request(raw)
    assert caught.value.code is code


@given(
    st.one_of(
        st.binary(max_size=600), st.lists(st.binary(max_size=20), max_size=9).map(lambda f: rrq(*f))
    )
)
def test_noise_raises_nothing_else(raw: bytes) -> None:
    try:
        request = parse_request(raw)
        negotiate(request.options, 1000)
    except TftpError:
        pass
    try:
        parse_answer(raw, len(raw))
    except TftpError:
        assert len(raw) < 4


def test_packets_to_clients() -> None:
    assert build_oack((("blksize", "1468"),)) == b"\0\6blksize\x001468\0"
    assert build_error(Code.NOT_FOUND, "no such file") == b"\0\5\0\1no such file\0"


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5 * 512, 70_000])
@pytest.mark.parametrize("window", [1, 4, 16])
def test_a_file_arrives_whole(size: int, window: int) -> None:
    data = bytes(i % 251 for i in range(size))
    transfer = Transfer(data, Terms(512, window, 1.0, (("windowsize", str(window)),)), 0.0)
    assert receive(transfer, window) == (data, size // 512 + 2)
    assert transfer.phase is Phase.DONE


def test_more_than_65536_blocks() -> None:
    data = bytes(range(256)) * 2100  # 67,200 blocks of 8 bytes
    got, _ = receive(Transfer(data, Terms(8, 16, 1.0, ()), 0.0), 16)
    assert got == data


@given(st.sets(st.integers(1, 100), max_size=12), st.sampled_from([1, 3, 16]))
def test_a_file_arrives_whole_though_packets_are_lost(lose: set[int], window: int) -> None:
    data = bytes(i % 253 for i in range(40_000))
    transfer = Transfer(data, Terms(512, window, 1.0, (("blksize", "512"),)), 0.0)
    got, _ = receive(transfer, window, lose)
    if transfer.phase is Phase.DONE:
        assert got == data
    else:
        assert (
            len(lose) >= 4
        )  # it takes four losses in a row to give up one that has answered nothing yet


@pytest.mark.parametrize("block", [8, 1468])
def test_a_window_from_any_block_on_is_one_piece(block: int) -> None:
    """What a client gets does not depend on where the pieces end that a file is kept in."""
    data = bytes(i % 251 for i in range(150 * block + 5))
    for first in range(150):
        transfer = Transfer(data, Terms(block, 16, 1.0, ()), 0.0)
        for acked in [*range(16, first, 16), first]:
            sent = transfer.answer(Op.ACK, acked, 0.0)
        blocks = range(first, min(first + 16, 151))
        assert transfer.split(sent) == [
            b"\0\3" + (n + 1).to_bytes(2, "big") + data[n * block : (n + 1) * block] for n in blocks
        ]


def test_what_one_node_alone_gets_is_not_kept() -> None:
    """A boot script by TFTP has the token of its boot."""
    script = b"a token is in here\n" * 100
    before = sys.getrefcount(script)
    transfer = Transfer(script, PLAIN, 0.0)
    assert transfer.begin(0.0)
    del transfer
    assert sys.getrefcount(script) == before


def test_an_old_ack_is_answered_by_nothing() -> None:
    transfer = Transfer(bytes(2000), PLAIN, 0.0)
    assert len(transfer.split(transfer.begin(0.0))) == 1
    assert len(transfer.split(transfer.answer(Op.ACK, 1, 0.1))) == 1
    assert transfer.answer(Op.ACK, 1, 0.2) == b""
    assert transfer.answer(Op.ACK, 0, 0.3) == b""
    assert transfer.answer(Op.ACK, 60_000, 0.3) == b""
    assert transfer.answer(Op.DATA, 2, 0.3) == b""


def test_an_ack_of_blocks_that_do_not_exist_is_no_end() -> None:
    transfer = Transfer(bytes(600), Terms(512, 16, 1.0, ()), 0.0)
    assert transfer.answer(Op.ACK, 9, 0.1) == b""
    assert transfer.phase is Phase.RUNNING


def test_an_error_of_the_client_ends_it() -> None:
    transfer = Transfer(bytes(600), PLAIN, 0.0)
    assert transfer.answer(Op.ERROR, 8, 0.0) == b""
    assert transfer.phase is Phase.ABORTED


def test_a_client_that_falls_silent_is_sent_to_less_and_less_often_and_ends_after_a_minute() -> (
    None
):
    transfer = Transfer(bytes(5000), PLAIN, 0.0)
    transfer.begin(0.0)
    transfer.answer(Op.ACK, 1, 10.0)
    now, sent = 10.0, []
    while transfer.phase is Phase.RUNNING:
        now += 0.25
        if transfer.due(now) and transfer.timeout(now):
            sent.append(now - 10.0)
    assert sent[:5] == [1.0, 3.0, 7.0, 11.0, 15.0] and now == 70.0
    assert transfer.phase is Phase.SILENT


def test_a_client_whose_cable_was_out_for_less_than_a_minute_gets_the_rest() -> None:
    data = bytes(i % 251 for i in range(5000))
    transfer, got, now = Transfer(data, PLAIN, 0.0), b"", 0.0
    waiting = transfer.begin(now)
    while transfer.phase is Phase.RUNNING:
        out = 2.0 <= now < 58.0
        if waiting and not out:
            got += waiting[4:]
            now += 0.5
            waiting = transfer.answer(Op.ACK, int.from_bytes(waiting[2:4], "big"), now)
        else:
            now += 0.5
            waiting = transfer.timeout(now) if transfer.due(now) else b""
    assert transfer.phase is Phase.DONE and got == data


def test_one_that_has_answered_nothing_ends_soon() -> None:
    transfer, now = Transfer(bytes(5000), PLAIN, 0.0), 0.0
    while transfer.phase is Phase.RUNNING:
        now += 0.25
        if transfer.due(now):
            transfer.timeout(now)
    assert now == 10.0
