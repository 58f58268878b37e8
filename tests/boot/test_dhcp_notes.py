"""What people read of a DHCP decision: the counter, the event's text and data, and how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pxe import events
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import INSTALL_SHIM, NO_SHIM, Common, Decision, Outcome, decide
from pxe.dhcp.relay import Relay, Relays, parts_of, relay_of
from pxe.machine import Client
from pxe.nodes import Node, from_record
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.state import BootState
from pxe.windows import Step
from tests.boot.test_dhcp_decision import (
    HTTP_UEFI,
    IPXE,
    MAC,
    NODE,
    PXE_ARM,
    PXE_BIOS,
    PXE_UEFI,
    SERVER,
    arm,
    ask,
    packet,
)
from tests.support.clock import FakeClock

RELAY = bytes((10, 120, 0, 1))
FAR = {"name": "far", "subnet": "10.120.0.0/24", "gateway": "10.120.0.1", "relays": []}
MACS = "52:54:00:00:01:01"


def note(decision: Decision) -> Note:
    """The only one."""
    (found,) = decision.notes
    return found


def change(state: BootState, **record: object) -> None:
    """The node has another record."""
    known = {"name": "n1", "macs": [MACS], "ip": "10.99.0.11", **record}
    state.nodes.update(from_record(NODE, known, state.settings))


def test_outcomes_are_counted_by_these_names() -> None:
    """They are metrics of the head."""
    assert [outcome.value for outcome in Outcome] == [
        "offered",
        "acked",
        "naked",
        "released",
        "declined",
        "unknown-mac",
        "not-armed",
        "no-program",
        "wrong-architecture",
        "no-ipv4",
        "other-server",
        "not-for-us",
        "other-network",
        "pool-full",
        "not-told",
    ]


def test_a_stranger_is_told_with_its_address_once_a_minute(state: BootState) -> None:
    found = note(ask(state, packet(1, PXE_UEFI, chaddr=bytes.fromhex("5254000000ff") + bytes(10))))
    assert found == Note(
        "",
        events.UNKNOWN_MAC,
        "52:54:00:00:00:ff asks for an address and is not in the inventory",
        None,
        {"mac": "52:54:00:00:00:ff", "client": Client.UEFI.value, "arch": 7},
        "52:54:00:00:00:ff",
        60.0,
    )


def test_an_address_that_something_else_has_is_told(state: BootState) -> None:
    found = note(ask(state, packet(MessageType.DECLINE)))
    assert found.text == "the node says that 10.99.0.11 is used by something else on the network"
    assert (found.node, found.data, found.every) == (NODE, {"ip": "10.99.0.11"}, 60.0)


def test_a_request_for_another_address_is_told(state: BootState) -> None:
    found = note(ask(state, packet(MessageType.REQUEST, {50: SERVER})))
    assert found.kind is events.DHCP_REFUSED
    assert found.text == "the node asked for 10.99.0.1, its address is 10.99.0.11"
    assert (found.data, found.every) == ({"ip": "10.99.0.11"}, 10.0)


def test_firmware_that_is_not_to_boot_is_told_every_ten_seconds(state: BootState) -> None:
    found = note(ask(state, packet(1, PXE_BIOS)))
    client = Client.BIOS.value
    data = {"client": client, "arch": 0, "mac": MACS}
    text = f"{client} asks for a boot program, but no boot is wanted now; not answered"
    assert found == Note(NODE, events.IGNORED, text, None, data, "", 10.0)
    state.nodes.set_run(NODE, "SYNC")
    text = (
        f"{client} asks for a boot program, but the node should be running (run=SYNC); not answered"
    )
    assert note(ask(state, packet(1, PXE_BIOS))) == Note(
        NODE, events.UNWANTED, text, None, data, "", 10.0
    )


def test_a_machine_of_another_architecture_is_told(state: BootState) -> None:
    arm(state)
    decision = ask(state, packet(1, PXE_ARM))
    found = note(decision)
    assert decision.outcome is Outcome.WRONG_ARCHITECTURE and decision.reply is None
    assert found.kind is events.WRONG_ARCHITECTURE and found.data is not None
    assert (found.data["arch"], found.data["mac"], found.about, found.every) == (11, MACS, "", 10.0)


@pytest.mark.parametrize("options", [PXE_UEFI, HTTP_UEFI])
def test_secure_boot_without_its_programs_is_told(
    state: BootState, options: dict[int, bytes]
) -> None:
    change(state, firmware="uefi", secure_boot=True)
    arm(state)
    decision = ask(state, packet(1, options))
    found = note(decision)
    assert decision.outcome is Outcome.NO_PROGRAM and decision.reply is None
    assert found.kind is events.IGNORED and found.severity == "warning" and found.about == "arch"
    assert found.text.endswith(f"): {NO_SHIM} ({INSTALL_SHIM})") and found.every == 10.0


@pytest.mark.parametrize("options", [PXE_UEFI, HTTP_UEFI, IPXE])
def test_secure_boot_with_its_programs_or_by_ipxe_is_answered(
    state: BootState, options: dict[int, bytes]
) -> None:
    change(state, firmware="uefi", secure_boot=True)
    arm(state)
    common = Common(state.settings, signed=options is not IPXE)
    decision = decide(packet(1, options), state.nodes, state.windows, common, state.clock())
    assert decision.outcome is Outcome.OFFERED


def test_a_boot_is_offered_with_two_steps(state: BootState) -> None:
    arm(state)
    seen, offered = ask(state, packet(1, PXE_BIOS)).notes
    client = Client.BIOS.value
    data = {"client": client, "arch": 0, "mac": MACS, "ip": "10.99.0.11"}
    assert seen == Note(
        NODE,
        Step.DISCOVER.kind,
        f"{client} client {MACS} (architecture 0) asks for a boot program",
        data=data,
        about=(Client.BIOS, MAC),
        every=1.0,
        step=Step.DISCOVER,
    )
    assert offered == replace(
        seen, kind=Step.OFFER.kind, text="offered 10.99.0.11 and undionly.kpxe", step=Step.OFFER
    )


@pytest.mark.parametrize(
    ("firmware", "options", "differs"),
    [
        ("bios", PXE_BIOS, None),
        ("bios", PXE_UEFI, 7),
        ("uefi", PXE_UEFI, None),
        ("uefi", PXE_BIOS, 0),
        ("bios", IPXE, None),
        ("uefi", IPXE, 0),
        ("uefi", {**IPXE, 93: b"\0\7"}, None),
        ("bios", {**IPXE, 93: b"\0\7"}, 7),
    ],
)
def test_another_firmware_than_the_inventory_says_is_told(
    state: BootState, firmware: str, options: dict[int, bytes], differs: int | None
) -> None:
    change(state, firmware=firmware)
    arm(state)
    notes = [n for n in ask(state, packet(1, options)).notes if n.kind is events.FIRMWARE_DIFFERS]
    assert [n.data for n in notes] == ([] if differs is None else [{"arch": differs}])
    for found in notes:
        assert found.text.startswith(f"the inventory says {firmware}, ") and found.every == 60.0
        assert f"with architecture {differs} asks; answered as what it is" in found.text


def test_a_node_of_ipv6_alone_is_not_answered(state: BootState) -> None:
    change(state, ip="fd00::11", network={"name": "six", "subnet": "fd00::/64"})
    arm(state)
    assert ask(state, packet(1, PXE_UEFI)) == Decision(Outcome.NO_IPV4)


# -- relays


def by_relay(giaddr: bytes = RELAY, agent: bytes = b"") -> DhcpPacket:
    """A DISCOVER that a relay has passed on."""
    return packet(1, {82: agent} if agent else {}, giaddr=giaddr)


def test_a_node_that_asks_in_another_network_is_told_with_what_the_relay_says(
    state: BootState,
) -> None:
    change(state, network=FAR, ip="10.120.0.50")
    assert ask(state, by_relay()).outcome is Outcome.OFFERED
    agent = b"\1\4swp1\2\3tor\5\4\x0a\x79\0\1"
    found = note(ask(state, by_relay(bytes((10, 121, 0, 9)), agent)))
    assert found.kind is events.OTHER_NETWORK and found.every == 60.0
    assert found.text.startswith(
        f"{MACS} asks for 10.120.0.50 by the relay 10.121.0.9, which speaks for 10.121.0.1, a "
        "network that no node here is in; that address is of far, 10.120.0.0/24, and it gets none"
    )
    assert found.data == {
        "mac": MACS,
        "ip": "10.120.0.50",
        "network": "far",
        "relay": "10.121.0.9",
        "circuit": "swp1",
        "remote": "tor",
        "link": "10.121.0.1",
    }
    plain = note(ask(state, by_relay(bytes((10, 121, 0, 9)))))
    assert plain.data == {"mac": MACS, "ip": "10.120.0.50", "network": "far", "relay": "10.121.0.9"}


def test_a_node_of_the_heads_network_that_asks_behind_a_relay_is_told(state: BootState) -> None:
    change(state)
    other = {"name": "n2", "macs": ["52:54:00:00:01:02"], "ip": "10.120.0.51", "network": FAR}
    state.nodes.update(from_record("other", other, state.settings))
    found = note(ask(state, by_relay()))
    assert "which speaks for network far; that address is of the network of the head" in found.text
    assert found.data is not None and found.data["network"] == ""
    assert ask(state, by_relay(bytes((10, 121, 0, 1)))).outcome is Outcome.OFFERED


def test_a_port_is_shown_up_to_64_bytes_and_in_hex_if_it_is_no_text() -> None:
    def circuit(value: bytes) -> str:
        return Relay(RELAY, RELAY, None, {1: value}).circuit

    assert circuit(b"swp1") == "swp1" and circuit(b"") == ""
    assert circuit(b"x" * 64) == circuit(b"x" * 65) == "x" * 64
    assert circuit(b"\0\1") == "00:01" and circuit(b"\xff") == "ff"
    assert parts_of(b"\1\2ab\1\1c\2\0") == {1: b"ab", 2: b""}
    assert parts_of(b"\1\5ab") == {} and parts_of(b"\1") == {}


def test_a_relay_of_no_address_is_none() -> None:
    assert relay_of(packet(1)) is None
    found = relay_of(by_relay(agent=b"\5\4\0\0\0\0\x0b\3abc"))
    assert found is not None and (found.link, found.server) == (RELAY, None)


# -- answers that are kept


def rig(state: BootState) -> tuple[Answers, Relays]:
    """What answers packets of the node, and the relays that it hears of."""
    relays = Relays(state.clock)
    common = Common(state.settings)
    return Answers(state.nodes, state.windows, relays, common, state.clock), relays


def test_a_relay_is_noted_with_each_answer_made_or_kept(state: BootState, clock: FakeClock) -> None:
    change(state, network=FAR, ip="10.120.0.50")
    answers, relays = rig(state)
    data = dhcp.build(by_relay(agent=b"\1\4swp1"))
    clock.now += 100.0
    for seconds in (0.0, 30.0, 60.0):
        answers.to(data)
        assert relays.view()["far"].seconds_ago == 0.0
        assert (relays.view()["far"].relay, relays.view()["far"].circuit) == ("10.120.0.1", "swp1")
        clock.now += 30.0
        assert relays.view()["far"].seconds_ago == 30.0, seconds


def test_no_relay_is_noted_of_strangers_and_of_what_came_by_none(state: BootState) -> None:
    answers, relays = rig(state)
    stranger = packet(1, giaddr=RELAY, chaddr=bytes.fromhex("5254000000ff") + bytes(10))
    assert answers.to(dhcp.build(stranger)).outcome is Outcome.UNKNOWN_MAC
    for _ in range(2):
        assert answers.to(dhcp.build(packet(1))).outcome is Outcome.OFFERED
    assert relays.view() == {}


def test_an_answer_without_a_reply_is_empty(state: BootState) -> None:
    answers, _ = rig(state)
    found = answers.to(dhcp.build(packet(1, PXE_BIOS)))
    assert (found.way, found.address, found.source, found.before, found.after) == (None, *[b""] * 4)


def test_a_boot_program_with_a_long_name_is_in_its_option_alone(state: BootState) -> None:
    node = state.nodes.by_mac(MAC)
    assert isinstance(node, Node)
    arm(state)
    decision = ask(state, packet(1, HTTP_UEFI))
    assert decision.reply is not None and decision.reply.file == decision.reply.options[67]


def test_a_refusal_says_why_to_the_client(state: BootState) -> None:
    decision = ask(state, packet(MessageType.REQUEST, {50: SERVER}))
    assert decision.reply is not None
    assert decision.reply.options[dhcp.MESSAGE] == b"not the address of this node"
