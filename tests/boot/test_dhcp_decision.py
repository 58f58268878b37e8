"""Who gets an address, who gets a boot program, and by which way. No socket, no real clock."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.moduleapi.service import FakeLink
from pxe.dhcp.decision import Common, Decision, Outcome, Way, decide
from pxe.machine import Client, client_of
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.state import BootState
from pxe.windows import Step, Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

NODE = "6b1f2a3c-0000-4000-8000-000000000001"
TOKEN = "one-use_token.42"
MAC = bytes.fromhex("525400000101")
IP, SERVER = socket.inet_aton("10.99.0.11"), socket.inet_aton("10.99.0.1")
PXE_BIOS = {60: b"PXEClient:Arch:00000:UNDI:002001", 93: b"\0\0"}
PXE_UEFI = {60: b"PXEClient:Arch:00007:UNDI:003001", 93: b"\0\7"}
PXE_ARM = {60: b"PXEClient:Arch:00011:UNDI:003000", 93: b"\0\x0b"}
HTTP_ARM = {60: b"HTTPClient:Arch:00019:UNDI:003000", 93: b"\0\x13"}
HTTP_UEFI = {60: b"HTTPClient:Arch:00016:UNDI:003001", 93: b"\0\x10"}
IPXE = {**PXE_BIOS, 77: b"iPXE", 175: b"\xb1\1\1"}


def packet(kind: int, options: dict[int, bytes] | None = None, **fields: Any) -> DhcpPacket:
    return DhcpPacket(
        1,
        7,
        fields.pop("chaddr", MAC + bytes(10)),
        {53: bytes([kind]), **(options or {})},
        **fields,
    )


def ask(state: BootState, request: DhcpPacket) -> Decision:
    return decide(request, state.nodes, state.windows, Common(state.settings), state.clock())


def arm(state: BootState) -> None:
    state.windows.arm(NODE, TOKEN, 100.0, state.clock())


def kinds(decision: Decision) -> list[str]:
    return [note.kind.name for note in decision.notes]


def test_discover_offers_the_reservation(state: BootState) -> None:
    decision = ask(state, packet(MessageType.DISCOVER))
    assert decision.outcome is Outcome.OFFERED
    assert decision.reply is not None
    assert decision.reply.options == {
        53: b"\2",
        54: SERVER,
        51: (3600).to_bytes(4, "big"),
        58: (1800).to_bytes(4, "big"),
        59: (3150).to_bytes(4, "big"),
        1: socket.inet_aton("255.255.255.0"),
        3: socket.inet_aton("10.99.0.254"),
        6: SERVER + socket.inet_aton("10.99.0.2"),
        12: b"n1",
        42: SERVER,
    }
    assert (decision.reply.yiaddr, decision.reply.siaddr, decision.reply.file) == (
        IP,
        bytes(4),
        b"",
    )
    assert decision.notes == ()


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({50: IP, 54: SERVER}, {}),  # selecting
        ({50: IP}, {}),  # init-reboot
        ({}, {"ciaddr": IP}),  # renewing and rebinding
    ],
)
def test_requests_for_the_right_address_are_acked(
    state: BootState, options: dict[int, bytes], fields: dict[str, bytes]
) -> None:
    decision = ask(state, packet(MessageType.REQUEST, options, **fields))
    assert decision.outcome is Outcome.ACKED
    assert decision.reply is not None
    assert (decision.reply.message_type, decision.reply.yiaddr) == (MessageType.ACK, IP)
    assert decision.reply.ciaddr == fields.get("ciaddr", bytes(4))


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({50: socket.inet_aton("10.99.0.12"), 54: SERVER}, {}),
        ({50: socket.inet_aton("192.168.1.5")}, {}),
        ({}, {"ciaddr": socket.inet_aton("10.99.0.12")}),
    ],
)
def test_requests_for_a_wrong_address_are_naked_to_everyone(
    state: BootState, options: dict[int, bytes], fields: dict[str, bytes]
) -> None:
    decision = ask(state, packet(MessageType.REQUEST, options, **fields))
    assert decision.outcome is Outcome.NAKED
    assert decision.way is Way.BROADCAST
    assert decision.reply is not None
    assert (decision.reply.yiaddr, decision.reply.ciaddr) == (bytes(4), bytes(4))
    assert dhcp.LEASE_TIME not in decision.reply.options


def test_nak_through_a_relay_is_to_be_broadcast_by_it(state: BootState) -> None:
    relay = socket.inet_aton("10.98.0.1")
    decision = ask(state, packet(MessageType.REQUEST, {50: SERVER}, giaddr=relay))
    assert (decision.way, decision.address) == (Way.RELAY, relay)
    assert decision.reply is not None
    assert decision.reply.flags & dhcp.BROADCAST_FLAG


def test_request_without_an_address_and_for_another_server_is_left_alone(state: BootState) -> None:
    assert ask(state, packet(MessageType.REQUEST)).outcome is Outcome.NOT_FOR_US
    other = packet(MessageType.REQUEST, {50: IP, 54: socket.inet_aton("10.99.0.9")})
    assert ask(state, other) == Decision(Outcome.OTHER_SERVER)


def test_inform_gets_options_and_no_lease(state: BootState) -> None:
    decision = ask(state, packet(MessageType.INFORM, ciaddr=IP))
    assert decision.reply is not None
    assert (decision.outcome, decision.way, decision.address) == (Outcome.ACKED, Way.UNICAST, IP)
    assert decision.reply.yiaddr == bytes(4)
    assert {51, 58, 59}.isdisjoint(decision.reply.options)
    assert ask(state, packet(MessageType.INFORM)).reply is None


def test_release_and_decline_get_no_reply_and_decline_is_told(state: BootState) -> None:
    assert ask(state, packet(MessageType.RELEASE, {54: SERVER}, ciaddr=IP)) == Decision(
        Outcome.RELEASED
    )
    declined = ask(state, packet(MessageType.DECLINE, {54: SERVER, 50: IP}))
    assert declined.reply is None
    assert [(n.kind.name, n.kind.severity) for n in declined.notes] == [
        ("dhcp.declined", "warning")
    ]
    assert (
        ask(state, packet(MessageType.DISCOVER)).outcome is Outcome.OFFERED
    )  # the reservation stays


@pytest.mark.parametrize("changes", [{"op": 2}, {"htype": 6}, {"hlen": 8}])
def test_what_is_no_ethernet_request_is_left_alone(
    state: BootState, changes: dict[str, int]
) -> None:
    fields = {"op": 1, "xid": 1, "chaddr": MAC + bytes(10), "options": {53: b"\1"}, **changes}
    assert ask(state, DhcpPacket(**fields)).outcome is Outcome.NOT_FOR_US  # type: ignore[arg-type]  # a mixed bag of fields


@pytest.mark.parametrize("options", [{}, {53: b"\0"}, {53: b"\2"}, {53: b"\5"}, {53: b"\x0a"}])
def test_message_types_of_servers_and_strangers_are_left_alone(
    state: BootState, options: dict[int, bytes]
) -> None:
    assert ask(state, DhcpPacket(1, 1, MAC + bytes(10), options)).outcome is Outcome.NOT_FOR_US


@pytest.mark.parametrize(
    ("fields", "way", "address"),
    [
        ({}, Way.FRAME, IP),
        ({"flags": 0x8000}, Way.BROADCAST, b"\xff" * 4),
        ({"ciaddr": IP, "flags": 0x8000}, Way.UNICAST, IP),
        (
            {"giaddr": socket.inet_aton("10.98.0.1"), "flags": 0x8000},
            Way.RELAY,
            socket.inet_aton("10.98.0.1"),
        ),
    ],
)
def test_the_way_of_a_reply(
    state: BootState, fields: dict[str, Any], way: Way, address: bytes
) -> None:
    decision = ask(state, packet(MessageType.DISCOVER, **fields))
    assert (decision.way, decision.address) == (way, address)


def test_relay_information_is_echoed_last_and_client_id_too(state: BootState) -> None:
    decision = ask(
        state,
        packet(
            MessageType.DISCOVER,
            {82: b"\1\4swp1", 61: b"\1" + MAC},
            giaddr=socket.inet_aton("10.98.0.1"),
        ),
    )
    assert decision.reply is not None
    assert list(decision.reply.options.items())[-2:] == [(61, b"\1" + MAC), (82, b"\1\4swp1")]
    assert decision.reply.giaddr == socket.inet_aton("10.98.0.1")


def test_unknown_mac_gets_nothing_and_is_told_once_a_minute(
    state: BootState, link: FakeLink, clock: Any
) -> None:
    stranger = packet(MessageType.DISCOVER, chaddr=bytes.fromhex("5254000000ff") + bytes(10))
    for moment in (0.0, 1.0, 59.0):
        clock.now = 1000.0 + moment
        decision = ask(state, stranger)
        assert (decision.outcome, decision.reply) == (Outcome.UNKNOWN_MAC, None)
        for note in decision.notes:
            state.recorder.note(note)
    assert [(e[0], e[1], e[4]["mac"]) for e in link.events] == [
        ("", "dhcp.unknown-mac", "52:54:00:00:00:ff")
    ]
    clock.now = 1061.0
    state.recorder.count()
    assert (link.events[-1][1], link.events[-1][4]["count"]) == ("dhcp.unknown-mac", 2)


def test_a_flood_of_unknown_macs_is_counted_and_takes_bounded_memory(
    state: BootState, link: FakeLink, clock: FakeClock
) -> None:
    for number in range(60_000):
        mac = b"\x02" + number.to_bytes(5, "big")
        for note in ask(state, packet(MessageType.DISCOVER, chaddr=mac + bytes(10))).notes:
            state.recorder.note(note)
    assert len(link.events) == 50, "a rack of new machines is told one by one"
    clock.now += 60.0
    state.recorder.count()
    assert (len(link.events), link.events[-1][4]["count"]) == (51, 59_950)
    assert link.events[-1][4]["addresses"] <= 10_000


@pytest.mark.parametrize("options", [PXE_BIOS, PXE_UEFI, HTTP_UEFI, IPXE])
@pytest.mark.parametrize("kind", [MessageType.DISCOVER, MessageType.REQUEST])
def test_firmware_gets_no_answer_unless_armed(
    state: BootState, options: dict[int, bytes], kind: int
) -> None:
    decision = ask(state, packet(kind, {**options, 50: IP}))
    assert (decision.outcome, decision.reply, kinds(decision)) == (
        Outcome.NOT_ARMED,
        None,
        ["boot.ignored"],
    )


def test_the_window_ends_by_itself(state: BootState, clock: Any) -> None:
    arm(state)
    clock.now += 99.9
    assert ask(state, packet(MessageType.DISCOVER, PXE_BIOS)).outcome is Outcome.OFFERED
    clock.now += 0.2
    assert ask(state, packet(MessageType.DISCOVER, PXE_BIOS)).outcome is Outcome.NOT_ARMED


def test_ignored_firmware_is_told_at_most_every_ten_seconds(
    state: BootState, link: FakeLink, clock: Any
) -> None:
    for moment in (0.0, 4.0, 9.9, 10.1, 15.0):
        clock.now = 1000.0 + moment
        for note in ask(state, packet(MessageType.DISCOVER, PXE_UEFI)).notes:
            state.recorder.note(note)
    assert [e[1] for e in link.events] == ["boot.ignored"] * 2


@pytest.mark.parametrize("run", ["SYNC", "ERROR"])
def test_firmware_of_a_node_that_should_run_is_a_warning(state: BootState, run: str) -> None:
    state.nodes.set_run(NODE, run)
    decision = ask(state, packet(MessageType.DISCOVER, PXE_BIOS))
    assert decision.reply is None
    assert [(n.kind.name, n.kind.severity) for n in decision.notes] == [
        ("boot.unwanted", "warning")
    ]


@pytest.mark.parametrize(
    ("options", "file", "siaddr", "more"),
    [
        (PXE_BIOS, b"undionly.kpxe", SERVER, {66: b"10.99.0.1"}),
        (PXE_UEFI, b"snponly.efi", SERVER, {66: b"10.99.0.1"}),
        ({**PXE_UEFI, 93: b"\0\x09"}, b"snponly.efi", SERVER, {66: b"10.99.0.1"}),
        (HTTP_UEFI, b"http://10.99.0.1:8080/boot/snponly.efi", bytes(4), {60: b"HTTPClient"}),
        (IPXE, b"http://10.99.0.1:8080/boot/52-54-00-00-01-01", SERVER, {175: b"\xb0\1\1"}),
        ({77: b"\4iPXE", 93: b"\0\7"}, b"http://10.99.0.1:8080/boot/52-54-00-00-01-01", SERVER, {}),
    ],
)
def test_the_boot_program_by_architecture(
    state: BootState, options: dict[int, bytes], file: bytes, siaddr: bytes, more: dict[int, bytes]
) -> None:
    arm(state)
    for kind, outcome in (
        (MessageType.DISCOVER, Outcome.OFFERED),
        (MessageType.REQUEST, Outcome.ACKED),
    ):
        decision = ask(state, packet(kind, {**options, 50: IP}))
        assert decision.outcome is outcome
        assert decision.reply is not None
        assert (decision.reply.file, decision.reply.options[67], decision.reply.siaddr) == (
            file,
            file,
            siaddr,
        )
        assert more.items() <= decision.reply.options.items()
        assert (
            len(dhcp.build(decision.reply)) <= 576
        )  # what every client must take (RFC 2131 section 2)


def test_the_heads_ipxe_goes_before_that_of_a_card_which_shall_not_be_used(
    state: BootState,
) -> None:
    """Both ask as iPXE: which one it is says what was fetched before."""
    old = state.nodes.by_mac(MAC)
    assert old is not None
    state.nodes.update(replace(old, card_ipxe=False))
    arm(state)

    def program() -> bytes:
        decision = ask(state, packet(MessageType.DISCOVER, IPXE))
        assert decision.reply is not None
        return decision.reply.file

    script = b"http://10.99.0.1:8080/boot/52-54-00-00-01-01"
    assert program() == b"undionly.kpxe"
    state.windows.record(NODE, Step.NBP, 1.0, {}, done=False)
    assert program() == b"undionly.kpxe", "its transfer has not ended"
    state.windows.record(NODE, Step.NBP, 2.0, {})
    assert program() == script
    state.windows.record(NODE, Step.SCRIPT, 3.0, {})
    assert program() == b"undionly.kpxe", "it has begun anew"


def test_steps_of_an_armed_client(state: BootState) -> None:
    arm(state)
    decision = ask(state, packet(MessageType.DISCOVER, PXE_BIOS))
    assert [n.step for n in decision.notes] == [Step.DISCOVER, Step.OFFER]
    assert decision.notes[0].data == {
        "client": "BIOS PXE",
        "arch": 0,
        "mac": "52:54:00:00:01:01",
        "ip": "10.99.0.11",
    }


def test_an_architecture_other_than_the_record_is_answered_as_what_it_is(state: BootState) -> None:
    arm(state)
    decision = ask(state, packet(MessageType.DISCOVER, PXE_UEFI))  # the record says bios
    assert decision.reply is not None
    assert decision.reply.file == b"snponly.efi"
    assert "boot.firmware-differs" in kinds(decision)


def test_an_architecture_without_a_program_is_told(state: BootState) -> None:
    arm(state)
    decision = ask(
        state,
        packet(MessageType.DISCOVER, {60: b"PXEClient:Arch:00027:UNDI:003000", 93: b"\0\x1b"}),
    )
    assert (decision.outcome, decision.reply, kinds(decision)) == (
        Outcome.NO_PROGRAM,
        None,
        ["boot.ignored"],
    )


def of_arm(state: BootState) -> None:
    record = {
        "name": "n1",
        "macs": [MAC.hex(":")],
        "ip": "10.99.0.11",
        "arch": "aarch64",
        "firmware": "uefi",
    }
    state.nodes.update(from_record(NODE, record))


@pytest.mark.parametrize(
    ("options", "file"),
    [(PXE_ARM, b"shimaa64.efi"), (HTTP_ARM, b"http://10.99.0.1:8080/boot/52-54-00-00-01-01.img")],
)
def test_arm64_firmware_is_offered_shim_or_a_volume(
    state: BootState, options: dict[int, bytes], file: bytes
) -> None:
    of_arm(state)
    arm(state)
    decision = ask(state, packet(MessageType.DISCOVER, options))
    assert decision.outcome is Outcome.OFFERED and decision.reply is not None
    assert decision.reply.options[dhcp.BOOT_FILE] == file
    assert (decision.reply.options.get(dhcp.VENDOR_CLASS) == b"HTTPClient") is (options is HTTP_ARM)
    assert kinds(decision) == ["boot.discover-seen", "boot.offer-sent"]


@pytest.mark.parametrize(
    ("arch", "options", "said"),
    [
        (
            "x86_64",
            PXE_ARM,
            "its firmware is of aarch64 (architecture 11), the inventory says x86_64",
        ),
        (
            "x86_64",
            HTTP_ARM,
            "its firmware is of aarch64 (architecture 19), the inventory says x86_64",
        ),
        (
            "aarch64",
            PXE_BIOS,
            "its firmware is of x86_64 (architecture 0), the inventory says aarch64",
        ),
        (
            "aarch64",
            HTTP_UEFI,
            "its firmware is of x86_64 (architecture 16), the inventory says aarch64",
        ),
        ("aarch64", IPXE, "its firmware is of x86_64 (architecture 0), the inventory says aarch64"),
    ],
)
def test_firmware_of_another_architecture_ends_the_boot_with_the_reason(
    state: BootState, link: FakeLink, arch: str, options: dict[int, bytes], said: str
) -> None:
    if arch == "aarch64":
        of_arm(state)
    arm(state)
    window = state.windows.armed(NODE, state.clock())
    decision = ask(state, packet(MessageType.DISCOVER, options))
    assert (decision.outcome, decision.reply) == (Outcome.WRONG_ARCHITECTURE, None)
    state.recorder.answered(decision.notes, None, "DHCP", "br0")
    assert [(e[1], e[2]) for e in link.events] == [("boot.wrong-architecture", said)]
    assert window is not None and window.spoiled == said and window.over.is_set(), (
        "nobody waits for it in vain"
    )


def test_a_system_that_runs_is_of_no_architecture(state: BootState) -> None:
    of_arm(state)
    arm(state)
    assert ask(state, packet(MessageType.DISCOVER)).outcome is Outcome.OFFERED


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, Client.SYSTEM),
        (PXE_ARM, Client.ARM64),
        (HTTP_ARM, Client.ARM64_HTTP),
        ({60: b"HTTPClient:Arch:00019"}, Client.ARM64_HTTP),
        ({60: b"dhclient"}, Client.SYSTEM),
        ({77: b"iPXE"}, Client.IPXE),
        ({77: b"\3abc\4iPXE"}, Client.IPXE),
        ({77: b"\3abc", 93: b"\0\0"}, Client.BIOS),
        ({175: b""}, Client.IPXE),
        ({175: b"", 93: b"\0\x0b"}, Client.OTHER),
        ({60: b"PXEClient"}, Client.BIOS),
        ({60: b"PXEClient:Arch:00007:UNDI:003001"}, Client.UEFI),
        ({60: b"HTTPClient:Arch:00016"}, Client.UEFI_HTTP),
        ({93: b"\0"}, Client.BIOS),
        ({93: b"\0\x06"}, Client.OTHER),
    ],
)
def test_who_asks(options: dict[int, bytes], client: Client) -> None:
    assert client_of(packet(MessageType.DISCOVER, options)) is client


CODES = [12, 43, 50, 54, 60, 61, 66, 77, 82, 93, 97, 175]


@given(
    st.integers(0, 255),
    st.dictionaries(st.sampled_from(CODES), st.binary(max_size=80)),
    st.binary(min_size=4, max_size=4),
    st.booleans(),
)
def test_no_packet_of_a_known_node_raises(
    kind: int, options: dict[int, bytes], address: bytes, armed: bool
) -> None:
    settings = boot_settings()
    nodes, windows = Nodes(), Windows()
    nodes.update(from_record(NODE, {"name": "n1", "macs": [MAC.hex(":")], "ip": "10.99.0.11"}))
    if armed:
        windows.arm(NODE, TOKEN, 10.0, 0.0)
    raw = dhcp.build(packet(kind, options, ciaddr=address, giaddr=address))
    try:
        parsed = dhcp.parse(raw)
    except dhcp.DhcpError:
        return
    decision = decide(parsed, nodes, windows, Common(settings), 1.0)
    if decision.reply is not None:
        assert dhcp.parse(dhcp.build(decision.reply)).yiaddr in (IP, bytes(4))
