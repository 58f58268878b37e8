"""What machines get that are not in the inventory, where their network has addresses for guests;
and the file of their leases."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from layercake.moduleapi.service import FakeLink
from pxe.dhcp.decision import Common, Decision, Outcome, Way, decide
from pxe.dynamic.addressing import DynamicAddressing
from pxe.dynamic.decision import answer
from pxe.dynamic.lease_file import FILE, LeaseFile
from pxe.dynamic.networks import AT_ONCE, DynamicNetworks
from pxe.dynamic.pool import DynamicClient
from pxe.nodes import Nodes
from pxe.notes import Recorder
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.state import BootState
from pxe.windows import Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

NEAR = {
    "name": "near",
    "subnet": "10.99.0.0/24",
    "gateway": "10.99.0.254",
    "domain": "near.test",
    "guest_lease_s": 120,
    "guests": ["10.99.0.200-10.99.0.203"],
}
FAR = {
    "name": "far",
    "subnet": "10.20.0.0/24",
    "gateway": "10.20.0.1",
    "guests": ["10.20.0.200-10.20.0.201"],
    "relays": ["192.168.9.1"],
}
MAC = bytes.fromhex("020000000001")
SERVER = bytes((10, 99, 0, 1))


def ip(word: str) -> bytes:
    return bytes(map(int, word.split(".")))


class Site:
    """A head with guests in its own network and behind a relay."""

    def __init__(self, state: BootState, link: FakeLink, **boot: Any) -> None:
        self.settings = boot_settings(boot=boot)
        self.state = state
        self.link = link
        self.now = 0.0
        self.guests = DynamicNetworks(self.settings)
        self.net = Common(self.settings)
        self.guests.update_network("near", NEAR, 0.0)
        self.guests.update_network("far", FAR, 0.0)

    def ask(
        self,
        kind: MessageType,
        options: dict[int, bytes] | None = None,
        mac: bytes = MAC,
        **fields: Any,
    ) -> Decision:
        packet = DhcpPacket(
            1, 7, mac + bytes(10), {53: bytes((kind,)), **(options or {})}, **fields
        )
        unknown = decide(packet, self.state.nodes, Windows(), self.net, self.now)
        return (
            answer(packet, unknown, self.guests, self.net, self.now)
            if unknown.outcome is Outcome.UNKNOWN_MAC
            else unknown
        )

    def address(self, mac: bytes = MAC, **fields: Any) -> bytes:
        """A whole exchange, and the address that it is about."""
        offer = self.ask(MessageType.DISCOVER, mac=mac, **fields)
        assert offer.outcome is Outcome.OFFERED and offer.reply is not None
        chosen = {
            dhcp.SERVER_ID: offer.reply.options[dhcp.SERVER_ID],
            dhcp.REQUESTED_IP: offer.reply.yiaddr,
        }
        ack = self.ask(MessageType.REQUEST, chosen, mac=mac, **fields)
        assert (
            ack.outcome is Outcome.ACKED
            and ack.reply is not None
            and ack.reply.yiaddr == offer.reply.yiaddr
        )
        return ack.reply.yiaddr


@pytest.fixture
def here(state: BootState, link: FakeLink) -> Site:
    return Site(state, link)


def test_a_stranger_gets_an_address_and_its_network_and_nothing_to_boot(here: Site) -> None:
    firmware = {60: b"PXEClient:Arch:00007:UNDI:003001", 93: b"\0\7", 97: b"\0" + bytes(16)}
    offer = here.ask(MessageType.DISCOVER, {**firmware, 61: b"\1" + MAC, 12: b"laptop"})
    assert (offer.outcome, offer.way, offer.address, offer.source) == (
        Outcome.OFFERED,
        Way.FRAME,
        ip("10.99.0.200"),
        SERVER,
    )
    reply = offer.reply
    assert reply is not None and (reply.siaddr, reply.file, reply.yiaddr) == (
        bytes(4),
        b"",
        ip("10.99.0.200"),
    )
    assert reply.options == {
        53: b"\2",
        54: SERVER,
        51: (120).to_bytes(4, "big"),
        58: (60).to_bytes(4, "big"),
        59: (105).to_bytes(4, "big"),
        1: ip("255.255.255.0"),
        3: ip("10.99.0.254"),
        15: b"near.test",
        42: SERVER,
        61: b"\1" + MAC,
        97: b"\0" + bytes(16),
    }
    (note,) = offer.notes
    assert (
        note.kind.name == "dhcp.unknown-mac"
        and note.data["ip"] == "10.99.0.200"
        and note.data["network"] == "near"
    )
    assert note.text.endswith(
        "is not in the inventory; as a guest of network near it is offered 10.99.0.200"
    )


def test_behind_a_relay_it_gets_one_of_that_network(here: Site) -> None:
    assert here.address(giaddr=ip("10.20.0.1")) == ip("10.20.0.200")
    offer = here.ask(MessageType.DISCOVER, giaddr=ip("192.168.9.1"))
    assert offer.reply is not None and (offer.way, offer.reply.yiaddr) == (
        Way.RELAY,
        ip("10.20.0.200"),
    )
    linked = here.ask(
        MessageType.DISCOVER,
        {82: b"\5\4" + ip("10.20.0.1")},
        mac=b"\2" * 6,
        giaddr=ip("172.16.0.1"),
    )
    assert (
        linked.reply is not None
        and linked.reply.yiaddr == ip("10.20.0.201")
        and 82 in linked.reply.options
    )
    assert here.ask(MessageType.DISCOVER, giaddr=ip("10.77.0.1")).outcome is Outcome.UNKNOWN_MAC, (
        "no network of ours"
    )
    assert here.address() == ip("10.99.0.200"), "and one in each network that it is in"


def test_where_a_network_has_no_guests_strangers_get_nothing(here: Site) -> None:
    here.guests.update_network("near", {**NEAR, "guests": []}, 0.0)
    assert here.ask(MessageType.DISCOVER).outcome is Outcome.UNKNOWN_MAC
    here.guests.remove_network("far")
    assert (
        here.ask(MessageType.DISCOVER, giaddr=ip("10.20.0.1")).outcome is Outcome.UNKNOWN_MAC
        and not here.guests
    )


def test_what_is_no_card_and_what_is_too_long_gets_nothing(here: Site) -> None:
    for mac in (bytes(6), b"\xff" * 6, b"\1" + bytes(5)):
        assert here.ask(MessageType.DISCOVER, mac=mac).outcome is Outcome.UNKNOWN_MAC
    assert here.ask(MessageType.DISCOVER, {61: bytes(256)}).outcome is Outcome.UNKNOWN_MAC
    assert here.ask(MessageType.INFORM, ciaddr=ip("10.99.0.77")).outcome is Outcome.UNKNOWN_MAC


def test_it_renews_by_itself_and_by_everybody(here: Site) -> None:
    mine = here.address()
    for now in range(60, 600, 60):
        here.now = float(now)
        ack = here.ask(MessageType.REQUEST, ciaddr=mine)
        assert ack.reply is not None and (ack.outcome, ack.way, ack.address) == (
            Outcome.ACKED,
            Way.UNICAST,
            mine,
        )
        assert (ack.reply.ciaddr, ack.reply.yiaddr, ack.notes) == (mine, mine, ())
    assert here.guests.counts(here.now)["near"].used == 1
    here.now += 121.0
    assert here.guests.counts(here.now)["near"].used == 0


def test_a_guest_behind_a_relay_renews_straight(here: Site) -> None:
    mine = here.address(giaddr=ip("10.20.0.1"))
    ack = here.ask(MessageType.REQUEST, ciaddr=mine)
    assert ack.reply is not None and (ack.outcome, ack.way, ack.reply.yiaddr) == (
        Outcome.ACKED,
        Way.UNICAST,
        mine,
    )


def test_after_a_restart_of_the_guest_its_address_is_confirmed_or_refused(here: Site) -> None:
    """INIT-REBOOT, RFC 2131 section 4.3.2."""
    mine = here.address()

    def again(word: str | bytes, **fields: Any) -> Outcome:
        return here.ask(
            MessageType.REQUEST, {50: word if isinstance(word, bytes) else ip(word)}, **fields
        ).outcome

    assert again(mine) is Outcome.ACKED
    assert again("10.99.0.202") is Outcome.NAKED, "it has another"
    stranger = b"\2\0\0\0\0\x99"
    assert again("192.168.1.20", mac=stranger) is Outcome.NAKED, "that is of another network"
    assert again("10.99.0.202", mac=stranger) is Outcome.UNKNOWN_MAC, (
        "of what nothing is known nothing is said"
    )
    assert again("10.99.0.202", mac=stranger, giaddr=ip("10.20.0.1")) is Outcome.NAKED
    assert (
        here.ask(MessageType.REQUEST, ciaddr=ip("10.99.0.202"), mac=stranger).outcome
        is Outcome.UNKNOWN_MAC
    )
    assert (
        here.ask(MessageType.REQUEST, ciaddr=ip("192.168.1.20"), mac=stranger).outcome
        is Outcome.NAKED
    )
    nak = here.ask(
        MessageType.REQUEST, {50: ip("192.168.1.20")}, mac=stranger, giaddr=ip("10.20.0.1")
    )
    assert nak.reply is not None and nak.reply.flags & dhcp.BROADCAST_FLAG and nak.way is Way.RELAY
    assert nak.reply.yiaddr == bytes(4) and dhcp.LEASE_TIME not in nak.reply.options


def test_who_chose_another_server_or_an_address_that_is_taken_gets_none(here: Site) -> None:
    mine = here.address()
    other = {54: ip("10.99.0.9"), 50: ip("10.99.0.201")}
    assert here.ask(MessageType.REQUEST, other, mac=b"\2" * 6).outcome is Outcome.OTHER_SERVER
    assert (
        here.ask(MessageType.REQUEST, {54: SERVER, 50: mine}, mac=b"\2" * 6).outcome
        is Outcome.NAKED
    )
    assert here.ask(MessageType.REQUEST, {54: SERVER}, mac=b"\2" * 6).outcome is Outcome.NOT_FOR_US


def test_a_full_pool_is_told_of_and_nobody_loses_an_address(here: Site) -> None:
    macs = [b"\2\0\0\0\0" + bytes((n,)) for n in range(4)]
    mine = {mac: here.address(mac) for mac in macs}
    assert len(set(mine.values())) == 4
    full = here.ask(MessageType.DISCOVER, mac=b"\2" * 6)
    assert full.outcome is Outcome.POOL_FULL and full.reply is None
    assert [note.kind.name for note in full.notes] == ["dhcp.unknown-mac", "dhcp.pool-full"]
    assert "the 4 addresses for guests of network near are in use" in full.notes[1].text
    assert {mac: here.address(mac) for mac in macs} == mine
    assert here.address(b"\2" * 6, giaddr=ip("10.20.0.1")) == ip("10.20.0.200"), (
        "another network has its own"
    )


def test_a_full_pool_is_an_event_once_a_minute_at_most(
    here: Site, link: FakeLink, clock: FakeClock
) -> None:
    recorder = Recorder(link, Windows(), clock)
    for n in range(500):
        decision = here.ask(MessageType.DISCOVER, mac=b"\2\0\0\0" + n.to_bytes(2, "big"))
        if decision.reply is not None:
            here.ask(
                MessageType.REQUEST,
                {54: SERVER, 50: decision.reply.yiaddr},
                mac=b"\2\0\0\0" + n.to_bytes(2, "big"),
            )
        recorder.answered(decision.notes, None, "DHCP", "br0")
    full = [(kind, severity) for _, kind, _, severity, _ in link.events if kind == "dhcp.pool-full"]
    assert len(full) == 1, link.events
    clock.now += 61.0
    recorder.count()
    said = [text for _, kind, text, _, _ in link.events if kind == "dhcp.pool-full"]
    assert len(said) == 2 and "network near" in said[1]


def test_what_is_given_back_and_what_is_used_by_something_else(here: Site) -> None:
    mine = here.address()
    assert here.ask(MessageType.RELEASE, {54: SERVER}, ciaddr=mine).outcome is Outcome.RELEASED
    assert here.guests.counts(0.0)["near"].used == 0 and here.address() == mine
    declined = here.ask(MessageType.DECLINE, {54: SERVER, 50: mine})
    assert declined.outcome is Outcome.DECLINED and [note.kind.name for note in declined.notes] == [
        "dhcp.declined"
    ]
    assert here.address() != mine
    nothing = here.ask(MessageType.DECLINE, {54: SERVER, 50: mine}, mac=b"\2" * 6)
    assert (nothing.outcome, nothing.notes) == (Outcome.DECLINED, ()), "it is not its to say"


def test_when_the_ranges_change_leases_go_on_as_far_as_they_can(here: Site) -> None:
    first, second = here.address(), here.address(b"\2" * 6)
    here.guests.update_network("near", {**NEAR, "guests": ["10.99.0.201-10.99.0.210"]}, 1.0)
    assert here.address(b"\2" * 6) == second and here.address() not in (first, second)
    assert here.guests.counts(1.0)["near"].addresses == 10


def test_the_heads_own_address_is_never_given(state: BootState, link: FakeLink) -> None:
    here = Site(state, link)
    here.guests.update_network("near", {**NEAR, "guests": ["10.99.0.1-10.99.0.2"]}, 0.0)
    assert here.address() == ip("10.99.0.2") and here.guests.counts(0.0)["near"].addresses == 1


def test_leases_are_shown_with_names_that_are_clean(here: Site) -> None:
    mine = here.address()
    here.ask(MessageType.REQUEST, {50: mine, 12: b"evil\x1b[2J\n\xff" + b"x" * 200})
    (shown,) = here.guests.leases(0, 20.0).leases
    assert (shown.network, shown.mac, shown.address, shown.seconds) == (
        "near",
        "02:00:00:00:00:01",
        "10.99.0.200",
        100.0,
    )
    assert shown.name == "evil[2J" + "x" * 53


def test_a_crowd_is_read_at_a_bounded_rate_and_guests_always(here: Site) -> None:
    here.address()
    macs = [b"\2\0\0" + n.to_bytes(3, "big") for n in range(100, 5000)]
    assert sum(here.guests.admits(mac, 1.0) for mac in macs) == AT_ONCE
    assert here.guests.admits(MAC, 1.0) and not here.guests.admits(b"\2" * 6, 1.0)
    assert here.guests.admits(b"\2" * 6, 1.1)
    assert not DynamicNetworks(here.settings).admits(b"\2" * 6, 0.0), (
        "without guests nothing of strangers is read"
    )


@pytest.mark.parametrize("mode", ["proxy", "off"])
async def test_where_the_site_gives_addresses_there_are_no_guests(
    mode: str, link: FakeLink, clock: FakeClock, tmp_path: Path
) -> None:
    hosting = DynamicAddressing(
        boot_settings(boot={"dhcp": mode}),
        tmp_path,
        Recorder(link, Windows(), clock),
        clock,
        Nodes(),
        Windows(),
    )
    hosting.start()
    hosting.update_network("near", NEAR)
    assert hosting.counts() == {} and not hosting.admits(MAC)
    await hosting.stop()
    assert list(tmp_path.iterdir()) == []


class Kept:
    """The leases of a site in a directory; `wall` is moved by hand."""

    def __init__(self, here: Site, link: FakeLink, directory: Path) -> None:
        self.wall = 1_000_000.0
        recorder = Recorder(link, Windows(), lambda: here.now)
        self.keeper = LeaseFile(
            directory, here.guests, recorder, lambda: here.now, lambda: self.wall
        )


async def test_leases_outlive_a_restart(
    here: Site, state: BootState, link: FakeLink, tmp_path: Path
) -> None:
    mine, theirs = here.address(), here.address(giaddr=ip("10.20.0.1"))
    here.ask(MessageType.REQUEST, {50: mine, 12: b"laptop"})
    gone = here.address(b"\2" * 6)
    here.ask(MessageType.RELEASE, {54: SERVER}, b"\2" * 6, ciaddr=gone)
    aside = here.address(b"\6" * 6)
    here.ask(MessageType.DECLINE, {54: SERVER, 50: aside}, b"\6" * 6)
    here.ask(MessageType.DISCOVER, mac=b"\x0a" * 6)  # an offer is not kept
    kept = Kept(here, link, tmp_path)
    kept.keeper.changed()
    kept.keeper.start()
    await kept.keeper.stop()
    assert oct((tmp_path / FILE).stat().st_mode)[-3:] == "600"
    again = Site(state, link)
    again.now, again.guests = 5000.0, DynamicNetworks(again.settings)
    after = Kept(again, link, tmp_path)
    after.wall += 50.0
    after.keeper.start()
    assert [network for network, _ in again.guests.durable_leases()] == ["near"] * 3 + ["far"]
    again.guests.update_network("far", FAR, 5000.0)
    again.guests.update_network("near", NEAR, 5000.0)
    shown = {
        (one.network, one.address): (one.name, one.seconds)
        for one in again.guests.leases(0, 5000.0).leases
    }
    assert shown == {("near", "10.99.0.200"): ("laptop", 70.0), ("far", "10.20.0.200"): ("", 550.0)}
    assert (again.address(), again.address(giaddr=ip("10.20.0.1")), again.address(b"\2" * 6)) == (
        mine,
        theirs,
        gone,
    )
    assert again.address(b"\6" * 6) not in (mine, gone, aside)
    await after.keeper.stop()
    assert link.events == []


async def test_a_lease_that_was_over_meanwhile_is_free_but_goes_last(
    here: Site, state: BootState, link: FakeLink, tmp_path: Path
) -> None:
    here.address()
    kept = Kept(here, link, tmp_path)
    assert await kept.keeper.write()
    again = Site(state, link)
    again.guests = DynamicNetworks(again.settings)
    after = Kept(again, link, tmp_path)
    after.wall += 3600.0
    after.keeper.start()
    again.guests.update_network("near", NEAR, 0.0)
    assert again.guests.counts(0.0)["near"].used == 0
    assert [again.address(bytes((2, n)) * 3) for n in range(3)] == [
        ip(f"10.99.0.{n}") for n in (201, 202, 203)
    ]
    assert again.address() == ip("10.99.0.200")
    await after.keeper.stop()


async def test_a_disk_that_does_not_take_it_costs_no_service(
    here: Site, link: FakeLink, tmp_path: Path
) -> None:
    kept = Kept(here, link, tmp_path / "gone")
    here.address()
    assert not await kept.keeper.write()
    assert not await kept.keeper.write()
    assert [(kind, text.startswith("cannot write ")) for _, kind, text, _, _ in link.events] == [
        ("dhcp.leases-not-kept", True)
    ]
    (tmp_path / "gone").mkdir()
    assert await kept.keeper.write(), "it is tried again"
    assert len(json.loads((tmp_path / "gone" / FILE).read_bytes())) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b'{"a": 1}',
        b"\xff\xfe",
        b'[{"network": "near", "address": "10.99.0.2000", "until": 1, "mac": "020000000001"}]',
        b'[{"network": "near", "address": "10.99.0.200", "until": 1, "mac": "0200"}]',
        b'[{"network": "near", "address": "10.99.0.200", "until": 1, "mac": "020000000001", '
        b'"state": "offered"}]',
        b'[{"network": "near", "address": "10.99.0.200", "until": 1e999, "mac": "020000000001"}]',
    ],
)
async def test_a_file_that_is_none_costs_no_service(
    here: Site, link: FakeLink, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / FILE).write_bytes(text)
    kept = Kept(here, link, tmp_path)
    kept.keeper.start()
    assert [kind for _, kind, _, _, _ in link.events] == ["dhcp.leases-not-kept"]
    assert here.address() == ip("10.99.0.200")
    await kept.keeper.stop()


async def test_a_clock_that_was_set_back_makes_no_lease_endless(
    here: Site, link: FakeLink, tmp_path: Path
) -> None:
    found = {"network": "near", "address": "10.99.0.200", "until": 9e9, "mac": "02:00:00:00:00:09"}
    (tmp_path / FILE).write_text(json.dumps([found]))
    guests = DynamicNetworks(here.settings)
    here.guests = guests
    kept = Kept(here, link, tmp_path)
    kept.keeper.start()
    guests.update_network("near", NEAR, 0.0)
    assert (guests.counts(86399.0)["near"].used, guests.counts(86401.0)["near"].used) == (1, 0)
    await kept.keeper.stop()


async def test_what_changes_is_written_by_itself(
    here: Site, link: FakeLink, tmp_path: Path
) -> None:
    kept = Kept(here, link, tmp_path)
    kept.keeper.start()
    here.address()
    kept.keeper.changed()
    async with asyncio.timeout(60):
        while not (tmp_path / FILE).exists():
            await asyncio.sleep(0)
    await kept.keeper.stop()
    assert os.listdir(tmp_path) == [FILE]


def test_two_of_one_machine_are_two_guests(here: Site) -> None:
    firmware = here.ask(MessageType.DISCOVER, {61: b"\0" + b"u" * 16})
    system = here.ask(MessageType.DISCOVER, {61: b"\xff" + b"d" * 12})
    assert (
        firmware.reply is not None
        and system.reply is not None
        and firmware.reply.yiaddr != system.reply.yiaddr
    )
    assert DynamicClient(MAC) != DynamicClient(MAC, b"\1")
