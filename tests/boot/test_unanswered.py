"""Firmware that is nearly right is served, or is told of with the reason: nobody is met with
silence."""

from __future__ import annotations

import pytest

from layercake.moduleapi.service import FakeLink
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import Common, Outcome
from pxe.dhcp.relay import Relays
from pxe.dhcp.server import DhcpServer
from pxe.notes import Recorder
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.packets.tftp import parse_request
from pxe.state import BootState
from tests.boot.test_dhcp_decision import MAC, PXE_UEFI, ask, packet
from tests.support.clock import FakeClock

STRANGER = bytes.fromhex("020000000001")
GUID = bytes.fromhex("5254000300000101")  # that of MAC
LONG_GUID = bytes.fromhex("e41d2d0300a1b2c3")
CLIENT_ID = b"\xff\0\0\0\0\0\2\0\0\2\xc9\0"


@pytest.mark.parametrize(
    "rest",
    [b"\xff", b"\xff\xff\xff", b"\xff\x42\x09", b"B\x0910.99.0.1", b"B\x0910.99.0.1\x3d\x07\x01RT"],
)
@pytest.mark.parametrize("name", [b"snponly.efi", b"node/52-54-00-00-01-01.cfg", b"BOOTB.efi"])
def test_a_file_name_is_served_whatever_firmware_has_read_behind_it(
    name: bytes, rest: bytes
) -> None:
    request = parse_request(b"\0\1" + name + rest + b"\0octet\0tsize\x000\0")
    assert (request.name, dict(request.options)) == (name.decode(), {"tsize": "0"})


def test_the_boot_file_has_a_zero_byte_behind_it() -> None:
    raw = dhcp.build(DhcpPacket(2, 1, MAC + bytes(10), {53: b"\2", 67: b"snponly.efi", 66: b"x"}))
    at = raw.index(b"\x43\x0bsnponly.efi") + 13
    assert raw[at] == 0
    assert dhcp.parse(raw).options == {53: b"\2", 67: b"snponly.efi", 66: b"x"}


@pytest.mark.parametrize("tail", [b"\x0c", b"\x0c\x09n", b"\x3d\xff\x01"])
def test_an_option_that_is_cut_off_takes_no_other_with_it(tail: bytes) -> None:
    whole = dhcp.build(DhcpPacket(1, 1, MAC + bytes(10), {53: b"\1", 93: b"\0\7"}))
    cut = whole[: whole.rindex(b"\0\7") + 2] + tail
    assert dhcp.parse(cut).options == {53: b"\1", 93: b"\0\7"}


@pytest.mark.parametrize(
    ("address", "hlen", "guid", "told"),
    [
        (bytes(16), 0, GUID, "52:54:00:00:01:01 gets no answer"),
        (MAC + bytes(10), 6, GUID, "52:54:00:00:01:01 gets no answer"),
        (bytes(16), 0, LONG_GUID, "e4:1d:2d:a1:b2:c3, which is not in the inventory"),
        (bytes(16), 16, LONG_GUID, "e4:1d:2d:a1:b2:c3, which is not in the inventory"),
    ],
)
def test_a_machine_that_asks_by_infiniband_is_told_of(
    state: BootState, address: bytes, hlen: int, guid: bytes, told: str
) -> None:
    options = {**PXE_UEFI, 61: CLIENT_ID + guid}
    decision = ask(state, packet(1, options, htype=32, hlen=hlen, chaddr=address))
    [note] = decision.notes
    assert decision.outcome is Outcome.NOT_FOR_US
    assert told in note.text and "InfiniBand" in note.text and guid.hex(":") in note.text


class Rig:
    """A DHCP server without sockets."""

    def __init__(self, state: BootState) -> None:
        self.link = FakeLink()
        self.clock = FakeClock()
        answers = Answers(
            state.nodes, state.windows, Relays(self.clock), Common(state.settings), self.clock
        )
        recorder = Recorder(self.link, state.windows, self.clock)
        settings = state.settings
        self.server = DhcpServer(settings, settings.interface, answers, recorder, self.clock)

    def hears(self, data: bytes) -> list[str]:
        """The texts of the events that follow."""
        before = len(self.link.events)
        self.server.receive(data)
        self.server.work()
        return [event[2] for event in self.link.events[before:]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (dhcp.build(DhcpPacket(1, 1, MAC + bytes(10), {})), "BOOTP"),
        (dhcp.build(packet(MessageType.REQUEST)), "does not say which"),
        (dhcp.build(packet(9)), "type 9"),
        (dhcp.build(packet(1, {82: bytes(400)})), "option 82"),
        (dhcp.build(packet(1, giaddr=b"\xe0\0\0\1")), "224.0.0.1"),
        (dhcp.build(packet(3, {54: b"\x0a\x63\0\x63"})), "10.99.0.99"),
        (dhcp.build(packet(1, htype=6)), "only Ethernet"),
        (dhcp.build(packet(1)).replace(dhcp.MAGIC, b"\0\0\0\0"), "cookie"),
        (dhcp.build(packet(1)).replace(b"\x35\1\1", b"\x35\2\1"), "cannot be read"),
    ],
)
def test_a_packet_without_an_answer_is_told_of_once_a_minute(
    state: BootState, data: bytes, why: str
) -> None:
    rig = Rig(state)
    [text] = rig.hears(data)
    assert why in text
    rig.clock.now += 59.0
    assert rig.hears(data) == []
    rig.clock.now += 2.0
    assert rig.hears(data) == [text]


@pytest.mark.parametrize(
    "data",
    [
        dhcp.build(DhcpPacket(2, 1, MAC + bytes(10), {53: b"\2"})),  # a server's, broadcast
        dhcp.build(packet(MessageType.RELEASE)),
        b"",
        bytes(240),
    ],
)
def test_what_is_due_no_answer_is_not_told_of(state: BootState, data: bytes) -> None:
    assert Rig(state).hears(data) == []


def test_strangers_are_told_of_with_the_reason(state: BootState) -> None:
    rig = Rig(state)
    data = dhcp.build(packet(1, {61: CLIENT_ID + LONG_GUID}, htype=32, hlen=0, chaddr=bytes(16)))
    [text] = rig.hears(data)
    assert "InfiniBand" in text
    broken = dhcp.build(packet(1, chaddr=STRANGER + bytes(10))).replace(dhcp.MAGIC, bytes(4))
    [text] = rig.hears(broken)
    assert "02:00:00:00:00:01" in text and "cookie" in text
