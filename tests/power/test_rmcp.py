"""RMCP+ as bytes: a conversation recorded with OpenIPMI's ipmi_sim 2.0.33 (its password ended with
it), and its mutilations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerman.ipmi import rmcp

CAPTURE = json.loads((Path(__file__).parent / "captures/ipmi_sim_session.json").read_text())
PASSWORD = CAPTURE["password"].encode()


def sent(name: str) -> bytes:
    return bytes.fromhex(CAPTURE[name][0])


def received(name: str) -> bytes:
    return bytes.fromhex(CAPTURE[name][1])


def handshake(password: bytes = PASSWORD, suite: int = 3) -> rmcp.Handshake:
    return rmcp.Handshake(rmcp.SUITES[suite], b"admin", password, b"abcd", bytes(range(16)))


def session(password: bytes = PASSWORD) -> rmcp.SessionKeys:
    shake = handshake(password)
    shake.take_open_response(rmcp.parse_plain(received("open"), rmcp.OPEN_RESPONSE, 1)[1])
    shake.take_rakp2(rmcp.parse_plain(received("rakp1"), rmcp.RAKP2, 2)[1])
    return shake.take_rakp4(rmcp.parse_plain(received("rakp3"), rmcp.RAKP4, 3)[1])


def test_the_probe_is_23_bytes_and_its_answer_says_ipmi_2() -> None:
    assert rmcp.probe() == sent("probe")
    assert len(rmcp.probe()) == 23
    assert rmcp.parse_probe(received("probe")) == rmcp.Capabilities(ipmi_2_0=True)


def test_a_bmc_without_rmcp_plus_is_told_apart() -> None:
    old = bytearray(received("probe"))
    old[-6] &= ~0x02  # extended capabilities: no IPMI 2.0
    old[-1] = rmcp.checksum(bytes(old[17:-1]))
    assert rmcp.parse_probe(bytes(old)) == rmcp.Capabilities(ipmi_2_0=False)


def test_the_handshake_is_what_the_bmc_accepted() -> None:
    shake = handshake()
    assert shake.open_request(1) == sent("open")
    shake.take_open_response(rmcp.parse_plain(received("open"), rmcp.OPEN_RESPONSE, 1)[1])
    assert shake.rakp1(2) == sent("rakp1")
    shake.take_rakp2(rmcp.parse_plain(received("rakp1"), rmcp.RAKP2, 2)[1])
    assert shake.rakp3(3) == sent("rakp3")


def test_a_refused_cipher_suite_is_a_status() -> None:
    assert handshake(suite=17).open_request(1) == sent("open17")
    status, _ = rmcp.parse_plain(received("open17"), rmcp.OPEN_RESPONSE, 1)
    assert status in rmcp.SUITE_STATUS


def test_another_password_is_noticed_by_the_bmcs_proof() -> None:
    with pytest.raises(rmcp.WrongPassword):
        session(b"another")


@pytest.mark.parametrize(
    ("name", "sequence", "command", "code", "data"),
    [
        ("privilege", 1, (6, 0x3B, b"\x04"), 0, b"\x04"),
        ("status", 2, (0, 1, b""), 0, b"\x00\x00\x00"),
        ("boot", 3, (0, 8, b"\x05\x80\x04\x00\x00\x00"), 0, b""),
        ("unknown", 4, (0, 0x7E, b""), 0xC1, b""),
    ],
)
def test_commands_in_the_session(
    name: str, sequence: int, command: tuple[int, int, bytes], code: int, data: bytes
) -> None:
    keys = session()
    function, number, body = command
    message = rmcp.message(function, sequence, number, body)
    assert keys.seal(sequence, bytes(range(16, 32)), message) == sent(name)
    assert rmcp.parse_message(keys.unseal(received(name)), function, sequence, number) == (
        code,
        data,
    )


def test_an_answer_to_another_request_is_not_taken() -> None:
    clear = session().unseal(received("status"))
    for wrong in ((0, 3, 1), (0, 2, 2), (6, 2, 1)):
        with pytest.raises(rmcp.Malformed):
            rmcp.parse_message(clear, *wrong)


def test_a_copy_of_an_earlier_packet_is_no_answer() -> None:
    keys = session()
    keys.unseal(received("status"))
    keys.unseal(received("boot"))
    with pytest.raises(rmcp.Malformed, match="older packet"):
        keys.unseal(received("status"))


def test_an_answer_to_another_probe_is_not_taken() -> None:
    with pytest.raises(rmcp.Malformed):
        rmcp.parse_probe(received("probe"), 7)


@given(st.integers(0, len(bytes.fromhex(CAPTURE["status"][1])) - 1), st.integers(1, 255))
def test_a_packet_changed_anywhere_is_not_taken(position: int, change: int) -> None:
    packet = bytearray(received("status"))
    packet[position] ^= change
    with pytest.raises(rmcp.Malformed):
        session().unseal(bytes(packet))


@given(
    st.binary(max_size=120),
    st.sampled_from(["probe", "open", "rakp1", "rakp3", "status"]),
    st.integers(0, 100),
)
def test_rubbish_is_malformed_and_nothing_else(rubbish: bytes, name: str, cut: int) -> None:
    keys, shake = session(), handshake()
    for data in (rubbish, received(name)[:cut] + rubbish, received(name)[:cut]):
        for parse in (
            rmcp.parse_probe,
            keys.unseal,
            lambda d: rmcp.parse_message(d, 0, 1, 1),
            lambda d: shake.take_open_response(rmcp.parse_plain(d, rmcp.OPEN_RESPONSE, 1)[1]),
            lambda d: shake.take_rakp2(rmcp.parse_plain(d, rmcp.RAKP2, 2)[1]),
        ):
            try:
                parse(data)
            except rmcp.Malformed:
                continue


def test_secrets_are_not_printed() -> None:
    keys = session()
    text = repr(keys) + repr(handshake())
    assert PASSWORD.decode() not in text
    assert keys.encryption.hex() not in text
    assert repr(keys.encryption) not in text
