"""Addresses and ids are worked out by integers: they are the same as the standard library's."""

from __future__ import annotations

import ipaddress
import uuid

from hypothesis import example, given
from hypothesis import strategies as st

from layercake.inventory.schema import NAMESPACE, node_id
from layercake.moduleapi.fields import Mistake, host_ip, ip_after, number_of
from layercake.moduleapi.network import Subnets, is_host

ADDRESSES = st.one_of(
    st.ip_addresses().map(str), st.text("0123456789.:abcf%/ \0x", max_size=16), st.text(max_size=8)
)
NUMBERS = st.integers(0, 2**32 - 1)


@given(ADDRESSES)
@example("10.0.0.01")
@example("10.0.0.1\0")
@example("1.2.3")
@example("１.2.3.4")
def test_a_number_is_that_of_ipaddress(word: str) -> None:
    try:
        parsed = ipaddress.ip_address(word)
    except ValueError:
        try:
            number_of(word)
        except ValueError:
            return
        raise AssertionError(f"{word!r} is no address") from None
    assert number_of(word) == (parsed.version, int(parsed))


@given(NUMBERS, st.integers(0, 70000))
def test_counting_up_gives_addresses_of_hosts_or_a_mistake(start: int, steps: int) -> None:
    first = ipaddress.IPv4Address(start)
    try:
        expected = host_ip(str(ipaddress.ip_address(host_ip(str(first))) + steps))
    except (Mistake, ipaddress.AddressValueError):
        expected = ""
    try:
        found = ip_after(str(first), steps)
    except Mistake:
        found = ""
    assert found == expected
    good = not (
        first.is_multicast or first.is_unspecified or first.is_loopback or start == 2**32 - 1
    )
    assert good or not found


@given(NUMBERS, NUMBERS, st.integers(8, 30))
def test_a_host_of_a_subnet(number: int, near: int, length: int) -> None:
    subnet = ipaddress.ip_network((near, length), strict=False)
    for its in (
        ipaddress.IPv4Address(number),
        subnet.network_address,
        subnet.broadcast_address,
        subnet[1],
        subnet[-2],
    ):
        inside = its in subnet
        assert is_host(str(its), subnet) == (
            inside and its not in (subnet.network_address, subnet.broadcast_address)
        )
        assert Subnets({"one": str(subnet)}).of(str(its)) == ("one" if inside else "")


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789.-", min_size=1, max_size=60))
def test_an_id_is_that_of_uuid5(name: str) -> None:
    assert node_id(name) == str(uuid.uuid5(NAMESPACE, name))
