"""DNS as part of the boot service, on a real wire: nodes are told the head as their server, and ask
it by dig."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pxe.dns_settings import DnsSettings
from tests.boot.conftest import NODE, RECORD, Running
from tests.boot.test_interop import wait_until

pytestmark = pytest.mark.root


@pytest.fixture
def named(wire: Any, files: dict[str, Any]) -> Iterator[Running]:
    """The service with DNS; its one node has a BMC and an alias."""
    made = Running(wire, files, {"dns": DnsSettings(serve=True, forward=())})
    made.start()
    try:
        made.do(made.service.node_changed(NODE, {**RECORD, "bmc": "10.98.0.1", "aliases": ["db"]}))
        wire.ip("-n", wire.client, "addr", "add", "10.99.0.11/24", "dev", wire.client_if)
        yield made
    finally:
        made.stop()
    assert made.errors == []


def dig(wire: Any, *words: str) -> list[str]:
    """What dig prints at the node's end."""
    found: list[str] = wire.run("dig", "+short", "@10.99.0.1", *words).stdout.decode().split("\n")
    return [line for line in found if line]


def test_a_node_asks_the_head_and_a_change_is_seen_by_the_next_question(
    named: Any, wire: Any
) -> None:
    assert dig(wire, "n1.cluster.internal") == ["10.99.0.11"] == dig(wire, "+tcp", "n1")
    assert dig(wire, "-x", "10.99.0.11") == ["n1.cluster.internal."]
    assert dig(wire, "-x", "10.98.0.1") == ["n1-bmc.cluster.internal."]
    assert dig(wire, "db.cluster.internal") == ["n1.cluster.internal.", "10.99.0.11"]
    named.do(named.service.node_changed(NODE, {**RECORD, "ip": "10.99.0.12"}))
    assert (
        dig(wire, "n1.cluster.internal") == ["10.99.0.12"]
        and dig(wire, "db.cluster.internal") == []
    )
    named.do(named.service.node_changed(NODE, {**RECORD, "ip": "nonsense"}))
    assert dig(wire, "n1.cluster.internal") == [], "a record that cannot be used has no name either"
    named.do(named.service.node_changed(NODE, RECORD))
    shown = named.do(named.service.call("boot.names", {"name": "n1"}))
    assert [(r["type"], r["data"]) for r in shown["records"]] == [("A", "10.99.0.11")] and shown[
        "address"
    ] == "10.99.0.1"
    named.do(named.service.node_removed(NODE))
    assert dig(wire, "n1.cluster.internal") == []
    assert named.stats()["dns.answered"] >= 5 and named.stats()["dns.tcp"] == 1


def test_what_has_the_port_already_costs_names_and_no_boot(
    wire: Any, files: dict[str, Any]
) -> None:
    first = Running(wire, files, {"dns": DnsSettings(serve=True)})
    first.start()
    try:
        second = Running(
            wire,
            files,
            {
                "dns": DnsSettings(serve=True),
                "http_port": 8081,
                "tftp_port": 6969,
                "dhcp_port": 6767,
            },
        )
        second.start()
        try:
            wait_until(lambda: "service.no-dns" in second.kinds(), 10)
            assert "another DNS server" in next(
                e[2] for e in second.link.events if e[1] == "service.no-dns"
            )
            assert second.stats()["nodes"] == 0 and second.service.sockets, "the rest is served"
        finally:
            second.stop()
    finally:
        first.stop()


def test_it_is_off_unless_it_is_wanted(running: Any, wire: Any) -> None:
    wire.ip("-n", wire.client, "addr", "add", "10.99.0.11/24", "dev", wire.client_if)
    assert (
        "refused"
        in wire.run("dig", "+tries=1", "+tcp", "@10.99.0.1", "n1", timeout=60.0).stdout.decode()
    )
    assert not running.do(running.service.call("boot.names", {}))["serves"]
