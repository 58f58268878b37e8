"""Beside a DHCP server of the site: what firmware is offered without an address, what is told of
addresses and of other servers. No socket, no real clock."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.kraken.errors import Refused
from layercake.moduleapi.service import FakeLink
from pxe import events
from pxe.dhcp import proxydhcp
from pxe.dhcp.decision import Common, Decision, Outcome, Way
from pxe.dhcp.foreign_servers import MOST, ForeignAnswer, ForeignServers, parse_answer_frame
from pxe.dhcp.frame import build_frame
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpError, DhcpPacket, MessageType
from pxe.settings import BootSettings, Settings
from pxe.state import BootState
from tests.boot.test_dhcp_decision import (
    HTTP_UEFI,
    IP,
    IPXE,
    MAC,
    NODE,
    PXE_BIOS,
    PXE_UEFI,
    SERVER,
    arm,
    kinds,
    packet,
)
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

SITE, ROGUE, ELSEWHERE = (socket.inet_aton(a) for a in ("10.99.0.2", "10.99.0.3", "10.99.0.77"))
BOOT_THIS = b"\x06\x01\x08\xff"
SCRIPT = b"http://10.99.0.1:8080/boot/52-54-00-00-01-01"


@pytest.fixture
def settings() -> Settings:
    return boot_settings(boot={"dhcp": "proxy", "dhcp_servers": ("10.99.0.2",)})


def ask(state: BootState, request: DhcpPacket, again: bool = False) -> Decision:
    made = proxydhcp.answer_again if again else proxydhcp.answer
    decision = made(request, state.nodes, state.windows, Common(state.settings), state.clock())
    state.recorder.answered(decision.notes, None, "DHCP", "br0")
    return decision


def take(state: BootState, address: bytes, options: dict[int, bytes] | None = None) -> list[str]:
    request = packet(
        MessageType.REQUEST, {50: address, 54: SITE, **(PXE_UEFI if options is None else options)}
    )
    notes = proxydhcp.taken(request, state.nodes)
    state.recorder.answered(notes, None, "DHCP", "br0")
    return [n.kind.name for n in notes]


# -- what is offered


@pytest.mark.parametrize(
    ("firmware", "file", "vendor", "siaddr"),
    [
        (PXE_BIOS, b"undionly.kpxe", {60: b"PXEClient", 43: BOOT_THIS, 66: b"10.99.0.1"}, SERVER),
        (PXE_UEFI, b"snponly.efi", {60: b"PXEClient", 43: BOOT_THIS, 66: b"10.99.0.1"}, SERVER),
        (IPXE, SCRIPT, {60: b"PXEClient", 43: BOOT_THIS}, SERVER),
        (HTTP_UEFI, b"http://10.99.0.1:8080/boot/snponly.efi", {60: b"HTTPClient"}, bytes(4)),
    ],
)
def test_firmware_is_offered_what_to_boot_and_no_address(
    state: BootState,
    firmware: dict[int, bytes],
    file: bytes,
    vendor: dict[int, bytes],
    siaddr: bytes,
) -> None:
    arm(state)
    uuid = {97: b"\0" + bytes(16)}
    decision = ask(state, packet(MessageType.DISCOVER, {**firmware, **uuid}))
    reply = decision.reply
    assert reply is not None and (decision.outcome, decision.way) == (
        Outcome.OFFERED,
        Way.BROADCAST,
    )
    assert reply.options == {53: b"\2", 54: SERVER, 67: file, **vendor, **uuid}
    assert (reply.yiaddr, reply.ciaddr, reply.siaddr, reply.file) == (
        bytes(4),
        bytes(4),
        siaddr,
        file,
    )
    assert dhcp.parse(dhcp.build(reply)) == reply
    again = ask(
        state, packet(MessageType.REQUEST, {**firmware, **uuid, 54: SERVER}, ciaddr=IP), again=True
    )
    assert again.reply == replace(reply, options={**reply.options, 53: b"\5"}, ciaddr=IP)
    assert not [n for n in again.notes if n.step], "its steps were those of the offer"


def test_nothing_is_for_systems_strangers_and_nodes_that_are_not_to_boot(state: BootState) -> None:
    assert ask(state, packet(MessageType.DISCOVER, PXE_UEFI)).outcome is Outcome.NOT_ARMED
    arm(state)
    for kind in MessageType:
        assert ask(state, packet(kind, {50: ELSEWHERE})).reply is None, "a system's"
        assert ask(state, packet(kind, PXE_UEFI, chaddr=bytes(16))).reply is None, "a stranger's"
        if kind is not MessageType.DISCOVER:
            assert (
                ask(state, packet(kind, {**PXE_UEFI, 50: ELSEWHERE, 54: SERVER})).reply is None
            ), "never refused, never given"
        if kind not in (MessageType.REQUEST, MessageType.INFORM):
            assert ask(state, packet(kind, PXE_UEFI, ciaddr=IP), again=True).reply is None
    assert ask(state, packet(MessageType.REQUEST, ciaddr=IP), again=True).reply is None


def test_a_relay_gets_the_offer_for_its_client(state: BootState) -> None:
    arm(state)
    relay = socket.inet_aton("10.99.0.254")
    state.nodes.update(replace(state.nodes.all()[0]))
    decision = ask(state, packet(MessageType.DISCOVER, {**PXE_UEFI, 82: b"\1\4swp1"}, giaddr=relay))
    assert decision.reply is not None
    assert (decision.way, decision.address, list(decision.reply.options)[-1]) == (
        Way.RELAY,
        relay,
        82,
    )


@given(
    st.sampled_from([proxydhcp.answer, proxydhcp.answer_again]),
    st.integers(0, 9),
    st.dictionaries(
        st.sampled_from([43, 50, 53, 54, 60, 77, 82, 93, 97, 175]), st.binary(max_size=40)
    ),
)
def test_no_packet_raises_and_no_answer_has_an_address(
    decide: Any, kind: int, options: dict[int, bytes]
) -> None:
    state = _state()
    arm(state)
    try:
        asked = dhcp.parse(dhcp.build(packet(kind, {**PXE_UEFI, **options, 53: bytes([kind])})))
    except DhcpError:
        return
    reply = decide(asked, state.nodes, state.windows, Common(state.settings), state.clock()).reply
    assert reply is None or (
        reply.yiaddr == bytes(4) and 51 not in reply.options and dhcp.build(reply)
    )


def _state() -> BootState:
    from pxe.nodes import Nodes, from_record
    from pxe.notes import Recorder
    from pxe.windows import Windows
    from tests.boot.conftest import RECORD

    nodes, windows, clock = Nodes(), Windows(), FakeClock(1000.0)
    nodes.update(from_record(NODE, RECORD))
    return BootState(
        boot_settings(boot={"dhcp": "proxy"}),
        nodes,
        windows,
        Recorder(FakeLink(), windows, clock),
        clock,
    )


# -- the address, which another gives


def test_a_boot_says_what_it_waits_for(state: BootState, link: FakeLink, clock: FakeClock) -> None:
    arm(state)
    assert kinds(ask(state, packet(MessageType.DISCOVER, PXE_BIOS))) == [
        "boot.discover-seen",
        "boot.offer-sent",
    ]
    assert (
        "no DHCPREQUEST: the site's DHCP server has offered it no address"
        in state.windows.why_stalled(NODE, 10, clock())
    )
    clock.now += 4
    assert "boot.no-address" not in kinds(ask(state, packet(MessageType.DISCOVER, PXE_UEFI)))
    clock.now += 4
    assert "boot.no-address" in kinds(ask(state, packet(MessageType.DISCOVER, PXE_UEFI)))
    text = next(e[2] for e in link.events if e[1] == "boot.no-address")
    assert (
        "for 8 s and takes no address" in text
        and "reserve 10.99.0.11 for 52:54:00:00:01:01 there" in text
    )
    assert take(state, IP) == ["boot.address-taken"]
    assert "address taken from the site's DHCP server 0 s ago" in state.windows.why_stalled(
        NODE, 10, clock()
    )
    clock.now += 60
    assert "boot.no-address" not in kinds(ask(state, packet(MessageType.DISCOVER, IPXE)))


def test_another_address_is_told_with_both_and_the_server(
    state: BootState, link: FakeLink, clock: FakeClock
) -> None:
    arm(state)
    ask(state, packet(MessageType.DISCOVER, PXE_UEFI))
    assert take(state, ELSEWHERE) == take(state, ELSEWHERE) == ["boot.other-address"]
    (event,) = [e for e in link.events if e[1] == "boot.other-address"]
    assert event[3] == "warning" and event[4]["took"] == "10.99.0.77"
    assert (
        "takes 10.99.0.77 of DHCP server 10.99.0.2, and by the inventory its address is 10.99.0.11"
        in event[2]
    )
    why = state.windows.why_stalled(NODE, 10, clock())
    assert "10.99.0.77 of DHCP server 10.99.0.2" in why and "has offered it no address" not in why
    clock.now += 60
    assert "boot.no-address" not in kinds(ask(state, packet(MessageType.DISCOVER, PXE_UEFI))), (
        "it is known why it goes on asking"
    )
    assert take(state, IP) == ["boot.address-taken"]
    assert "10.99.0.77" not in state.windows.why_stalled(NODE, 10, clock())


def test_what_running_systems_take_is_their_own_matter(state: BootState) -> None:
    assert take(state, ELSEWHERE, {}) == []
    assert (
        proxydhcp.taken(
            packet(MessageType.REQUEST, {50: ELSEWHERE, **IPXE}, chaddr=bytes(16)), state.nodes
        )
        == ()
    )
    assert proxydhcp.taken(packet(MessageType.DISCOVER, {50: ELSEWHERE, **IPXE}), state.nodes) == ()
    (note,) = proxydhcp.taken(packet(MessageType.REQUEST, IPXE, ciaddr=ELSEWHERE), state.nodes)
    assert note.kind is events.OTHER_ADDRESS and "a DHCP server that it does not name" in note.text


# -- other servers


def others(state: BootState, **boot: Any) -> ForeignServers:
    return ForeignServers(boot_settings(boot=boot), state.nodes, state.recorder)


def answer_of(
    server: bytes, address: bytes = IP, kind: int = MessageType.OFFER, mac: bytes = MAC
) -> ForeignAnswer:
    reply = DhcpPacket(2, 7, mac + bytes(10), {53: bytes([kind]), 54: server}, yiaddr=address)
    frame = build_frame(
        b"\x02\0\0\0\0\x09", b"\xff" * 6, (server, 67), (b"\xff" * 4, 68), dhcp.build(reply)
    )
    found = parse_answer_frame(frame)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("boot", "told"),
    [
        ({}, {SITE, ROGUE}),
        ({"dhcp_servers": ("10.99.0.2",)}, {ROGUE}),
        ({"dhcp": "proxy", "dhcp_servers": ("10.99.0.2",)}, {ROGUE}),
        ({"dhcp": "proxy"}, set()),
    ],
)
def test_servers_that_are_not_expected_are_told(
    state: BootState, boot: dict[str, Any], told: set[bytes]
) -> None:
    table = others(state, **boot)
    for server in (SERVER, SITE, ROGUE):
        wanted = ["dhcp.other-server"] if server in told else []
        assert [
            n.kind.name
            for n in table.notes_of_request(packet(MessageType.REQUEST, {50: IP, 54: server}))
        ] == wanted
        assert [n.kind.name for n in table.notes_of_answer(answer_of(server))] == wanted
        assert table.notes_of_answer(answer_of(server, mac=bytes(6))) == (), "of no node"
        assert table.notes_of_request(packet(MessageType.DISCOVER, {54: server})) == ()


def test_an_other_server_is_told_once_for_a_node_with_its_addresses(
    state: BootState, link: FakeLink
) -> None:
    table = others(state)
    for _ in range(3):
        for kind, address in (
            (MessageType.OFFER, ELSEWHERE),
            (MessageType.ACK, ELSEWHERE),
            (MessageType.NAK, bytes(4)),
        ):
            state.recorder.answered(
                table.notes_of_answer(answer_of(ROGUE, address, kind)), None, "DHCP", "br0"
            )
        state.recorder.answered(
            table.notes_of_request(packet(MessageType.REQUEST, {50: ELSEWHERE, 54: ROGUE})),
            None,
            "DHCP",
            "br0",
        )
    ((node, _, text, severity, data),) = link.events
    assert (node, severity, data["server"], data["server_mac"]) == (
        NODE,
        "warning",
        "10.99.0.3",
        "02:00:00:00:00:09",
    )
    assert text.startswith(
        "10.99.0.77 is offered by DHCP server 10.99.0.3 (MAC address 02:00:00:00:00:09), which is "
        "not expected"
    )
    (note,) = table.notes_of_request(packet(MessageType.REQUEST, {50: ELSEWHERE, 54: ROGUE}))
    assert "02:00:00:00:00:09" in note.text, "known from what was heard"


def test_a_flood_of_made_up_servers_is_counted(state: BootState, link: FakeLink) -> None:
    table = others(state)
    for number in range(1000):
        server = socket.inet_aton(f"10.7.{number >> 8}.{number & 255}")
        state.recorder.answered(table.notes_of_answer(answer_of(server)), None, "DHCP", "br0")
    assert len(link.events) == MOST
    assert state.recorder.counters["dhcp.other-servers"] == 1000


@given(st.binary(max_size=700), st.booleans())
def test_no_frame_does_harm(noise: bytes, nearly: bool) -> None:
    good = build_frame(
        bytes(6),
        bytes(6),
        (SITE, 67),
        (IP, 68),
        dhcp.build(DhcpPacket(2, 7, MAC + bytes(10), {53: b"\2"})),
    )
    try:
        parse_answer_frame(good[: len(noise)] + noise[len(noise) // 2 :] if nearly else noise)
    except DhcpError:
        return


# -- off


def test_where_dhcp_is_off_scripts_go_out_without_it_to_one_card_a_few_times(
    state: BootState, clock: FakeClock
) -> None:
    arm(state)
    with pytest.raises(Refused, match="has not asked for an address"):
        state.hand_out(*_window(state), MAC, "script")
    off = replace(state, settings=boot_settings(boot={"dhcp": "off"}))
    for _ in range(4):
        off.hand_out(*_window(off), MAC, "script")
    with pytest.raises(Refused, match="starts anew again and again"):
        off.hand_out(*_window(off), MAC, "script")


def _window(state: BootState) -> tuple[Any, Any]:
    return state.booting("10.99.0.11")


@pytest.mark.parametrize(
    "wrong",
    [
        {"dhcp": "both"},
        {"dhcp_servers": ["10.99.0"]},
        {"dhcp_servers": "10.99.0.2"},
        {"dhcp_servers": [f"10.0.0.{n}" for n in range(17)]},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    from layercake.moduleapi.fields import Mistake
    from pxe.settings import dhcp_servers

    with pytest.raises((Mistake, msgspec.ValidationError)):
        dhcp_servers(wrong["dhcp_servers"]) if "dhcp_servers" in wrong else msgspec.convert(
            wrong, BootSettings
        )


# -- what people read of it


def test_who_takes_which_address_of_whom_is_told_in_words(state: BootState) -> None:
    mac = "52:54:00:00:01:01"
    (right,) = proxydhcp.taken(packet(MessageType.REQUEST, {50: IP, 54: SITE, **PXE_UEFI}),
                               state.nodes)  # fmt: skip
    assert right.text == "UEFI PXE takes 10.99.0.11 of DHCP server 10.99.0.2"
    assert right.data == {
        "ip": "10.99.0.11",
        "took": "10.99.0.11",
        "mac": mac,
        "server": "10.99.0.2",
    }
    assert right.step is not None and right.every == 1.0
    (other,) = proxydhcp.taken(packet(MessageType.REQUEST, {50: ELSEWHERE, **PXE_UEFI}),
                               state.nodes)  # fmt: skip
    assert other.text.startswith(
        "UEFI PXE takes 10.99.0.77 of a DHCP server that it does not name, and by the inventory "
        "its address is 10.99.0.11: nothing can be fetched from another (hint: reserve "
        "10.99.0.11 for "
    )
    assert other.data == {"ip": "10.99.0.11", "took": "10.99.0.77", "mac": mac, "server": ""}
    assert other.step is None and other.about == MAC


def test_an_offer_without_an_address_is_told_as_such(state: BootState) -> None:
    arm(state)
    notes = ask(state, packet(MessageType.DISCOVER, PXE_BIOS)).notes
    (offer,) = [note for note in notes if note.kind.name == "boot.offer-sent"]
    assert offer.text == (
        "offered undionly.kpxe; the address is for the site's DHCP server to give"
    )


def test_who_waits_for_an_address_is_told_in_words(state: BootState, clock: FakeClock) -> None:
    arm(state)
    told = []
    for _ in range(120):
        told += [
            note
            for note in ask(state, packet(MessageType.DISCOVER, PXE_UEFI)).notes
            if note.kind is events.NO_ADDRESS
        ]
        clock.now += 1.0
    assert told and told[0].data == {"mac": "52:54:00:00:01:01", "ip": "10.99.0.11"}
    assert told[0].text.startswith("52:54:00:00:01:01 asks by DHCP for ")
    assert "and takes no address: no offer of the site's DHCP server has reached it" in told[0].text
