"""Where machines are by option 82 of their DHCP, and who claims the place of a node."""

from __future__ import annotations

import pytest

from layercake.moduleapi.strangers import option82
from pxe.dynamic.switch_ports import MOST_STRANGERS, SwitchPorts, switch_port_of
from pxe.nodes import Nodes, from_record, mac_text
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from tests.support.clock import FakeClock

OWN, NEW = bytes.fromhex("525400000010"), bytes.fromhex("020000000001")
RELAY = bytes((10, 2, 0, 1))
FIRMWARE = {dhcp.VENDOR_CLASS: b"PXEClient:Arch:00007", dhcp.CLIENT_ARCH: b"\0\7"}


def option(circuit: bytes = b"eth7", remote: bytes = b"SW1") -> bytes:
    parts = ((1, circuit), (2, remote))
    return b"".join(bytes((code, len(part))) + part for code, part in parts if part)


def asks(
    mac: bytes,
    value: bytes,
    giaddr: bytes = RELAY,
    system: bool = False,
    kind: int = MessageType.DISCOVER,
) -> DhcpPacket:
    options = {53: bytes((kind,)), **({} if system else FIRMWARE), **({82: value} if value else {})}
    return DhcpPacket(1, 7, mac + bytes(10), options, giaddr=giaddr)


class Rack:
    """One node at a place."""

    def __init__(self, place: str = option82("", "eth7", "sw1")) -> None:
        self.clock, self.nodes = FakeClock(), Nodes()
        self.switch_ports = SwitchPorts(self.nodes, self.clock)
        self.node = from_record(
            "id-n0", {"name": "n0", "macs": [mac_text(OWN)], "ip": "10.99.0.10"}
        )
        self.nodes.update(self.node)
        self.switch_ports.update_node(self.node, place)


def test_a_machine_that_asks_from_a_nodes_place_claims_it() -> None:
    rack = Rack()
    rack.clock.now += 100
    (note,) = rack.switch_ports.watch(asks(NEW, option()))
    assert (note.node, note.kind.name) == ("id-n0", "dhcp.place-claimed")
    assert note.data == {
        "mac": mac_text(NEW),
        "relay": "10.2.0.1",
        "circuit": "eth7",
        "remote": "SW1",
        "own_s": 100.0,
    }
    assert (
        rack.switch_ports.watch(asks(OWN, option()))
        == ()
        == rack.switch_ports.watch(asks(NEW, option(b"eth8")))
    )
    rack.clock.now += 7
    assert rack.switch_ports.watch(asks(NEW, option()))[0].data["own_s"] == 7.0
    assert rack.switch_ports.watch(asks(NEW, option(), system=True)) == (), (
        "a BMC that shares the port is no board"
    )
    assert len(rack.switch_ports.watch(asks(NEW, option(), giaddr=bytes(4)))) == 1, (
        "a switch on the head's own link says it too"
    )
    assert rack.switch_ports.watch(asks(NEW, option(), kind=MessageType.RELEASE)) == ()
    rack.switch_ports.remove_node("id-n0")
    assert rack.switch_ports.watch(asks(NEW, option())) == ()


def test_a_place_at_one_relay_is_at_no_other() -> None:
    rack = Rack(option82("10.2.0.1", "00:04:00:07", ""))
    value = option(b"\0\4\0\7", b"")
    assert len(rack.switch_ports.watch(asks(NEW, value))) == 1
    assert rack.switch_ports.watch(asks(NEW, value, giaddr=bytes((10, 2, 0, 2)))) == ()
    assert rack.switch_ports.watch(asks(NEW, value, giaddr=bytes(4))) == ()


@pytest.mark.parametrize(
    "value", [b"", b"\1", b"\1\x09ab", option(b""), option(b"x" * 65), b"\1\4eth7" * 50]
)
def test_what_names_no_place(value: bytes) -> None:
    assert (
        switch_port_of(asks(NEW, value)) is None
        and Rack().switch_ports.watch(asks(NEW, value)) == ()
    )


def test_a_multicast_relay_is_none() -> None:
    assert switch_port_of(asks(NEW, option(), giaddr=bytes((224, 0, 0, 1)))) is None


def test_where_cards_were_heard() -> None:
    rack = Rack()
    rack.clock.now += 50
    rack.switch_ports.watch(asks(NEW, option()))
    rack.clock.now += 5
    found = rack.switch_ports.sightings([OWN, NEW, bytes(6)])
    assert found[mac_text(OWN)].seconds_ago == 55.0 and found[mac_text(OWN)].circuit == "", (
        "nothing was heard since it began"
    )
    assert (found[mac_text(NEW)].circuit, found[mac_text(NEW)].seconds_ago) == (
        "eth7",
        5.0,
    ) and len(found) == 2
    rack.switch_ports.watch(asks(OWN, option()))
    rack.clock.now += 5
    rack.switch_ports.watch(asks(OWN, b"", giaddr=bytes(4), kind=MessageType.REQUEST))
    own = rack.switch_ports.sightings([OWN])[mac_text(OWN)]
    assert (own.circuit, own.seconds_ago) == ("eth7", 0.0), "it renews past the relay"
    taken = from_record("id-n0", {"name": "n0", "macs": [mac_text(NEW)], "ip": "10.99.0.10"})
    rack.nodes.update(taken)
    rack.switch_ports.update_node(taken, option82("", "eth7", "sw1"))
    assert rack.switch_ports.sightings([NEW])[mac_text(NEW)].circuit == "eth7", (
        "it is the node now, and was heard as a stranger"
    )
    assert rack.switch_ports.watch(asks(OWN, option()))[0].data["own_s"] == 10.0


def test_a_crowd_is_bounded() -> None:
    rack = Rack()
    macs = [b"\2\1" + n.to_bytes(4, "big") for n in range(MOST_STRANGERS + 100)]
    for mac in macs:
        rack.switch_ports.watch(asks(mac, option(b"other")))
    found = rack.switch_ports.sightings(macs)
    assert len(found) == MOST_STRANGERS and mac_text(OWN) in rack.switch_ports.sightings([OWN])
    assert sum(rack.switch_ports.admits() for _ in range(5000)) == 500
    rack.clock.now += 1
    assert sum(rack.switch_ports.admits() for _ in range(5000)) == 100
    assert not Rack("").switch_ports.admits()
