"""The node table and the records that it takes."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.kraken.errors import InputError
from pxe.nodes import Nodes, from_record, mac_bytes
from tests.support.site import boot_settings

RECORD = {"name": "n1", "macs": ["52:54:00:00:01:01"], "ip": "10.99.0.11", "firmware": "uefi"}
M1, M2 = mac_bytes("52:54:00:00:01:01"), mac_bytes("52-54-00-00-01-02")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "n 1"}, "host name"),
        ({"name": ""}, "host name"),
        ({"name": "-n"}, "host name"),
        ({"name": None}, "host name"),
        ({"macs": None}, "no MAC"),
        ({"macs": "52:54:00:00:01:01"}, "no MAC"),
        ({"macs": ["52:54:00"]}, "six pairs"),
        ({"macs": ["53:54:00:00:01:01"]}, "multicast"),
        ({"ip": "10.99.0"}, "not an IP address"),
        ({"ip": None}, "not an IP address"),
        ({"ip": "10.98.0.1"}, "not a host address of"),
        ({"ip": "10.99.0.255"}, "not a host address of"),
        ({"firmware": "efi"}, "not bios or uefi"),
    ],
)
def test_a_bad_record_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        from_record("id", {**RECORD, **change}, boot_settings())


def test_a_changed_node_leaves_nothing_of_the_old_one() -> None:
    nodes = Nodes()
    nodes.update(from_record("a", RECORD))
    nodes.update(from_record("a", {**RECORD, "macs": ["52:54:00:00:01:02"], "ip": "10.99.0.12"}))
    assert (nodes.by_mac(M1), nodes.by_ip("10.99.0.11")) == (None, None)
    assert nodes.by_mac(M2) is nodes.by_ip("10.99.0.12") is nodes.by_id("a")
    nodes.remove("a")
    assert (len(nodes), nodes.by_mac(M2), nodes.by_ip("10.99.0.12")) == (0, None, None)


def test_two_nodes_that_swap_addresses_one_after_the_other() -> None:
    nodes = Nodes()
    second = {**RECORD, "name": "n2", "macs": ["52:54:00:00:01:02"], "ip": "10.99.0.12"}
    nodes.update(from_record("a", RECORD))
    nodes.update(from_record("b", second))
    nodes.update(from_record("a", {**second, "name": "n1"}))
    nodes.update(from_record("b", {**RECORD, "name": "n2"}))
    owners = [
        nodes.by_mac(M1),
        nodes.by_mac(M2),
        nodes.by_ip("10.99.0.11"),
        nodes.by_ip("10.99.0.12"),
    ]
    assert [owner.id if owner else None for owner in owners] == ["b", "a", "b", "a"]


def test_removing_a_node_that_is_not_there_is_fine() -> None:
    Nodes().remove("x")
