"""Serial over LAN without sockets: numbers, acknowledgements, what is sent again, what is refused,
breaks."""

from __future__ import annotations

import pytest

from powerman.ipmi.rmcp import Malformed
from powerman.ipmi.sol import (
    BREAK,
    HELD_S,
    NACK,
    QUEUE,
    WAITS_S,
    Packet,
    Sol,
    decode,
    encode,
    parse_activated,
)

ROOM = 24  # bytes of a packet: its head and 20 more


def ack(packet: bytes, accepted: int | None = None, status: int = 0) -> bytes:
    """The BMC's answer to a packet."""
    sent = decode(packet)
    return encode(
        Packet(0, sent.sequence, len(sent.data) if accepted is None else accepted, status, b"")
    )


@pytest.mark.parametrize(
    "packet",
    [Packet(0, 3, 7, 0, b""), Packet(15, 0, 0, BREAK, b""), Packet(1, 2, 3, NACK, b"\x1b[2J")],
)
def test_a_packet_is_read_as_it_was_written(packet: Packet) -> None:
    assert decode(encode(packet)) == packet


@pytest.mark.parametrize("payload", [b"", b"\x01\x02\x03"])
def test_what_is_too_short_is_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed):
        decode(payload)
    with pytest.raises(Malformed):
        parse_activated(payload)


@pytest.mark.parametrize(
    ("said", "room"),
    [
        (b"\0\0\0\0\xd0\0\xd0\0", 200),
        (bytes(8), 200),
        (b"\0\0\0\0\x01\0\0\0", 16),
        (b"\0\0\0\0\x40\0\0\0", 64),
    ],
)
def test_sizes_are_kept_within_what_is_sensible(said: bytes, room: int) -> None:
    assert parse_activated(said).room == room


def test_what_the_machine_writes_is_acknowledged_and_a_repetition_is_no_news() -> None:
    sol, first = Sol(ROOM), encode(Packet(1, 0, 0, 0, b"login: "))
    found = sol.receive(first, 0.0)
    assert found.data == b"login: " and found.send == encode(Packet(0, 1, 7, 0, b""))
    again = sol.receive(first, 0.1)
    assert again.data == b"" and again.send == found.send
    longer = sol.receive(encode(Packet(1, 0, 0, 0, b"login: root")), 0.2)
    assert longer.data == b"root" and decode(longer.send).accepted == 11
    assert sol.receive(encode(Packet(2, 0, 0, 0, b"\r\n")), 0.3).data == b"\r\n"


def test_numbers_go_from_1_to_15_and_one_packet_is_on_its_way_at_a_time() -> None:
    sol, seen, typed = Sol(ROOM), [], bytes(range(65, 91)) * 20
    assert sol.write(typed) == len(typed)
    got = b""
    while packet := sol.due(0.0):
        assert sol.due(0.0) == b""
        seen.append(decode(packet).sequence)
        got += decode(packet).data
        sol.receive(ack(packet), 0.0)
    assert got == typed and seen == [n % 15 + 1 for n in range(len(seen))] and len(seen) == 26


def test_what_is_not_acknowledged_is_sent_again_and_given_up() -> None:
    sol, now, sent = Sol(ROOM), 0.0, []
    sol.write(b"x")
    for wait in WAITS_S:
        sent.append(sol.due(now))
        assert sol.due(now + wait - 0.01) == b"" and not sol.stuck
        now += wait
        assert sol.again_at == pytest.approx(now)
    assert (
        sol.due(now) == b""
        and sol.stuck
        and set(sent) == {sent[0]}
        and decode(sent[0]).sequence == 1
    )


def test_what_was_accepted_in_part_goes_on_with_the_rest() -> None:
    sol = Sol(ROOM)
    sol.write(b"reboot\n")
    assert sol.receive(ack(sol.due(0.0), accepted=3), 0.0).data == b""
    assert decode(sol.due(0.0)) == Packet(2, 0, 0, 0, b"oot\n")


def test_what_is_refused_is_held_for_a_moment() -> None:
    sol = Sol(ROOM)
    sol.write(b"reboot\n")
    sol.receive(ack(sol.due(0.0), accepted=0, status=NACK), 1.0)
    assert sol.due(1.0 + HELD_S - 0.01) == b"" and sol.again_at == 1.0 + HELD_S
    assert decode(sol.due(1.0 + HELD_S)).data == b"reboot\n"


def test_a_break_goes_before_what_is_written_later_and_again_if_it_was_refused() -> None:
    sol = Sol(ROOM)
    sol.send_break()
    sol.write(b"b")
    first = sol.due(0.0)
    assert decode(first) == Packet(1, 0, 0, BREAK, b"")
    sol.receive(ack(first, status=NACK), 0.0)
    second = sol.due(HELD_S)
    assert decode(second).status == BREAK
    sol.receive(ack(second), HELD_S)
    assert decode(sol.due(HELD_S)).data == b"b"


def test_an_acknowledgement_of_another_packet_is_none() -> None:
    sol = Sol(ROOM)
    sol.write(b"x")
    sol.due(0.0)
    sol.receive(encode(Packet(0, 9, 1, 0, b"")), 0.0)
    assert decode(sol.due(WAITS_S[0])).data == b"x"


def test_what_the_bmc_says_of_losses_and_its_end() -> None:
    sol = Sol(ROOM)
    assert "lost" in sol.receive(b"\0\0\0\x08", 0.0).lost
    assert "break" in sol.receive(b"\0\0\0\x04", 0.0).lost
    assert sol.receive(b"\0\0\0\x10", 0.0).ended


def test_a_paste_that_is_too_long_is_taken_in_part() -> None:
    assert Sol(ROOM).write(bytes(QUEUE + 5)) == QUEUE
