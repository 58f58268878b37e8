"""The kernel command line crossed the network in clear: hostile values are refused, by name."""

from __future__ import annotations

import socket

import pytest

from layercake.kraken.errors import InputError
from minos.identity import layercake_parameters, parse_identity

GOOD = (
    "console=ttyS0 quiet layercake.node=0f8fad5b-d9cb-469f-a165-70867728950e layercake.name=n1 "
    "layercake.mac=52:54:00:AA:bb:01 "
    "layercake.ip=10.99.0.11/24 layercake.gateway=10.99.0.1 layercake.dns=10.99.0.1,fd99::1 "
    "layercake.head=https://10.99.0.1:8443 "
    "layercake.sync=10.99.0.1:31415 layercake.token=Ab-_9 panic=-1"
)


def test_all_words_are_read() -> None:
    found = parse_identity(GOOD)
    assert (found.node, found.name, found.mac) == (
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "n1",
        "52:54:00:aa:bb:01",
    )
    assert found.address and (found.address.packed, found.address.prefix) == (
        socket.inet_aton("10.99.0.11"),
        24,
    )
    assert found.gateway and found.gateway.packed == socket.inet_aton("10.99.0.1")
    assert found.dns == ("10.99.0.1", "fd99::1")
    assert (found.head, found.sync, found.token) == (
        "https://10.99.0.1:8443",
        "10.99.0.1:31415",
        "Ab-_9",
    )


def test_what_the_network_says_is_read() -> None:
    found = parse_identity(
        "layercake.name=n1.rack2.test layercake.domain=far.test layercake.mtu=9000 "
        "layercake.routes=10.130.0.0/15@10.120.0.254,10.7.7.7/32@10.120.0.253"
    )
    assert (found.name, found.domain, found.mtu, found.search) == (
        "n1.rack2.test",
        "far.test",
        9000,
        "far.test",
    )
    assert [
        (socket.inet_ntoa(to.packed), to.prefix, socket.inet_ntoa(by.packed))
        for to, by in found.routes
    ] == [("10.130.0.0", 15, "10.120.0.254"), ("10.7.7.7", 32, "10.120.0.253")]


@pytest.mark.parametrize(
    ("words_", "names", "search"),
    [
        ("layercake.name=n1", ("n1",), ""),
        ("layercake.name=n1 layercake.domain=a.b", ("n1.a.b", "n1"), "a.b"),
        ("layercake.name=n1.a.b", ("n1.a.b", "n1"), "a.b"),
        ("layercake.name=n1.a.b layercake.domain=c", ("n1.a.b", "n1"), "c"),
        ("quiet", (), ""),
    ],
)
def test_a_machine_knows_itself_by_its_full_and_its_short_name(
    words_: str, names: tuple[str, ...], search: str
) -> None:
    found = parse_identity(words_)
    assert (found.host_names, found.search) == (names, search)


def test_an_empty_command_line_is_an_empty_identity() -> None:
    found = parse_identity("console=ttyS0 quiet")
    assert (found.node, found.address, found.gateway, found.dns, found.token) == (
        "",
        None,
        None,
        (),
        "",
    )


def test_the_last_word_wins_and_others_are_not_ours() -> None:
    assert layercake_parameters(
        "layercake.name=a layercake.name=b layercake.flag xlayercake.name=c kraken.name=d"
    ) == {"name": "b"}


def test_ipv6_address() -> None:
    found = parse_identity("layercake.ip=fd99::11/64")
    assert found.address and found.address.family == socket.AF_INET6 and found.address.prefix == 64


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("node", "../../etc"),
        ("node", "0f8fad5b"),
        ("name", "-rf"),
        ("name", "a/../b"),
        ("name", "n1;reboot"),
        ("name", "x" * 64),
        ("mac", "52:54:00"),
        ("mac", "zz:54:00:00:00:01"),
        ("ip", "10.99.0.11"),
        ("ip", "10.99.0.11/33"),
        ("ip", "10.99.0.11/-1"),
        ("ip", "10.99.0.11/٣"),
        ("ip", "300.1.1.1/24"),
        ("ip", "$(reboot)/24"),
        ("ip", "10.0.0.1/0"),
        ("gateway", "gw"),
        ("dns", "8.8.8.8,evil"),
        ("head", "http://10.99.0.1"),
        ("head", "https://user@host"),
        ("head", "https://h/../x"),
        ("sync", "10.99.0.1"),
        ("sync", "h:port"),
        ("name", "n1..a"),
        ("name", ".n1"),
        ("name", "n1."),
        ("name", "a." * 126 + "abc"),
        ("domain", "-a.b"),
        ("domain", "a;b"),
        ("domain", "x" * 64),
        ("domain", "a/../b"),
        ("mtu", "1"),
        ("mtu", "9e9"),
        ("mtu", "123456"),
        ("mtu", "٣٣٣٣"),
        ("routes", "10.0.0.0/8"),
        ("routes", "10.0.0.0@10.0.0.1"),
        ("routes", "10.0.0.0/8@gw"),
        ("routes", "10.0.0.0/8@fd00::1"),
        ("routes", "10.0.0.0/99@10.0.0.1"),
        ("token", "a'b"),
        ("token", "x" * 300),
    ],
)
def test_hostile_values_are_refused_by_name(word: str, value: str) -> None:
    with pytest.raises(InputError, match=f"layercake.{word}"):
        parse_identity(f"layercake.{word}={value}")


def test_a_wrong_token_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        parse_identity("layercake.token=s3cr3t'quote")
    assert "s3cr3t" not in str(caught.value)
