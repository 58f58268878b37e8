"""Answers that are kept, and packets that wait: what is sent is what would have been worked out
anew. No socket, no real clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.moduleapi.service import FakeLink
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import Common, Decision, Outcome, decide
from pxe.dhcp.queue import LATE_S, MOST, Queue
from pxe.dhcp.relay import Relays
from pxe.dhcp.server import DhcpServer
from pxe.nodes import Nodes, from_record
from pxe.notes import Note, Recorder
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.windows import Step, Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

CONF = boot_settings(gateway="10.99.0.254", dns=["10.99.0.1"])
FAR = {"name": "far", "subnet": "10.120.0.0/24", "gateway": "10.120.0.1", "relays": ["192.168.9.1"]}
IPS = ("10.99.0.11", "10.99.0.12", "10.120.0.50")
MACS = tuple(bytes.fromhex(f"52540000010{n}") for n in (1, 2, 3))
ASKED: tuple[dict[int, bytes], ...] = (
    {},
    {50: bytes((10, 99, 0, 11))},
    {50: bytes((10, 99, 0, 12)), 54: bytes((10, 99, 0, 1))},
    {50: bytes((10, 120, 0, 50))},
    {54: bytes((10, 99, 0, 9))},
)
CLIENTS: tuple[dict[int, bytes], ...] = (
    {},
    {61: b"\1abcdef"},
    {93: b"\0\0", 60: b"PXEClient:Arch:00000:UNDI:002001"},
    {93: b"\0\7", 60: b"PXEClient"},
    {77: b"iPXE", 93: b"\0\0", 175: b"\xb1\1\1"},
    {93: b"\0\x10", 60: b"HTTPClient:Arch:00016"},
    {55: b"\1\3\6"},
)
RELAYS = (
    bytes(4),
    bytes((10, 120, 0, 1)),
    bytes((192, 168, 9, 1)),
    bytes((10, 99, 0, 254)),
    bytes((10, 121, 0, 1)),
)
AGENTS = (b"", b"\1\4swp1", b"\5\4\x0a\x78\0\1", b"\x0b\4\x0a\x78\0\1")


class Rig:
    """All that answers, with three nodes, one of them behind a relay."""

    def __init__(self) -> None:
        self.clock = FakeClock(100.0)
        self.nodes, self.windows, self.relays = Nodes(), Windows(), Relays(self.clock)
        self.common = Common(CONF)
        self.answers = Answers(self.nodes, self.windows, self.relays, self.common, self.clock)
        for number in range(len(IPS)):
            self.put(number)

    def put(self, number: int, **changes: Any) -> None:
        """A node's record, or another of it."""
        record = {
            "name": f"n{number}",
            "macs": [MACS[number].hex(":")],
            "ip": IPS[number],
            "card_ipxe": number != 1,
            "network": FAR if number == 2 else None,
            **changes,
        }
        self.nodes.update(from_record(f"id{number}", record, CONF))

    def anew(self, data: bytes) -> tuple[Outcome, bytes | None, object, object]:
        """What is to be sent."""
        found = decide(dhcp.parse(data), self.nodes, self.windows, self.common, self.clock())
        if found.reply is None:
            return found.outcome, None, None, None
        return found.outcome, dhcp.build(found.reply), found.way, found.address

    def sent(self, data: bytes) -> tuple[Outcome, bytes | None, object, object]:
        """What is sent."""
        found = self.answers.to(data)
        if found.way is None:
            return found.outcome, None, None, None
        return found.outcome, found.payload(data), found.way, found.address


def bare(
    kind: int, number: int = 0, xid: int = 7, options: dict[int, bytes] | None = None, **fields: Any
) -> bytes:
    return dhcp.build(
        DhcpPacket(
            1, xid, MACS[number] + bytes(10), {53: bytes((kind,)), **(options or {})}, **fields
        )
    )


packets = st.builds(
    lambda kind, number, asked, client, agent, fields: bare(
        kind, number, options={**asked, **client, **({82: agent} if agent else {})}, **fields
    ),
    st.sampled_from((1, 3, 4, 7, 8)),
    st.integers(0, 2),
    st.sampled_from(ASKED),
    st.sampled_from(CLIENTS),
    st.sampled_from(AGENTS),
    st.fixed_dictionaries(
        {
            "xid": st.integers(0, 0xFFFFFFFF),
            "secs": st.integers(0, 9),
            "flags": st.sampled_from((0, 0x8000)),
            "ciaddr": st.sampled_from((bytes(4), bytes((10, 99, 0, 11)))),
            "giaddr": st.sampled_from(RELAYS),
        }
    ),
)
changes = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from(("n", "other")), st.booleans()),
    st.tuples(st.just("remove"), st.integers(0, 2)),
    st.tuples(st.just("arm"), st.integers(0, 2)),
    st.tuples(st.just("step"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.floats(0, 200)),
)


def change(rig: Rig, what: tuple[Any, ...]) -> None:
    match what:
        case ("put", number, name, near):
            ip = f"10.99.0.{60 + number}" if near else IPS[number]
            rig.put(
                number, name=f"{name}{number}", ip=ip, network=None if near or number != 2 else FAR
            )
        case ("remove", number):
            rig.nodes.remove(f"id{number}")
        case ("arm", number):
            rig.windows.arm(f"id{number}", "one-use-token", 100.0, rig.clock())
        case ("step", number):
            rig.windows.record(f"id{number}", Step.NBP, rig.clock(), {})
        case ("time", seconds):
            rig.clock.now += seconds


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(packets, changes), max_size=40))
def test_what_is_sent_is_what_would_be_worked_out_anew(
    steps: list[bytes | tuple[Any, ...]],
) -> None:
    """Whatever came before: changed records and networks, boots that begin and end, the same
    packets of other transactions."""
    rig, seen = Rig(), list[bytes]()
    for step in steps:
        if isinstance(step, tuple):
            change(rig, step)
        else:
            seen.append(step)
        for data in seen[-4:]:
            again = data[:4] + bytes((1, 2, 3, 4, 0, 5)) + data[10:]
            for each in (data, again, data):
                assert rig.sent(each) == rig.anew(each)


def test_a_node_that_runs_is_answered_out_of_its_record() -> None:
    rig, worked_out = Rig(), list[bytes]()

    def counted(packet: DhcpPacket, *rest: Any) -> Decision:
        worked_out.append(packet.mac)
        return decide(packet, *rest)

    rig.answers = Answers(rig.nodes, rig.windows, rig.relays, rig.common, rig.clock, decide=counted)
    agent = {82: b"\1\4swp1"}
    for xid in range(5):
        data = bare(MessageType.DISCOVER, 2, xid, agent, giaddr=RELAYS[1])
        payload = rig.answers.to(data).payload(data)
        assert dhcp.parse(payload).xid == xid and dhcp.parse(payload).options[82] == agent[82]
    assert len(worked_out) == 1 and rig.relays.view()["far"].circuit == "swp1", (
        "and the relay counts as heard"
    )
    rig.put(2, name="renamed")
    data = bare(MessageType.DISCOVER, 2, 9, agent, giaddr=RELAYS[1])
    assert dhcp.parse(rig.answers.to(data).payload(data)).options[12] == b"renamed"
    assert len(worked_out) == 2


def test_a_node_whose_boot_is_awaited_is_looked_at_anew() -> None:
    """It may have booted from its disk, and that is to be told."""
    rig, looked = Rig(), list[int]()

    def watch(packet: DhcpPacket) -> tuple[Note, ...]:
        looked.append(packet.xid)
        return ()

    rig.answers = Answers(rig.nodes, rig.windows, rig.relays, rig.common, rig.clock, watch)
    for xid in (1, 2):
        rig.answers.to(bare(MessageType.DISCOVER, 0, xid))
    rig.windows.arm("id0", "one-use-token", 100.0, rig.clock())
    for xid in (3, 4):
        rig.answers.to(bare(MessageType.DISCOVER, 0, xid))
    assert looked == [1, 3, 4]


def test_a_node_keeps_few_answers_and_short_ones() -> None:
    rig = Rig()
    for number in range(100):
        rig.answers.to(bare(MessageType.DISCOVER, 0, 1, {61: bytes((number,) * 8)}))
    rig.answers.to(bare(MessageType.DISCOVER, 1, 1, {61: bytes(900)}))
    found, other = rig.nodes.by_id("id0"), rig.nodes.by_id("id1")
    assert found is not None and other is not None and len(found.answers) == 4 and not other.answers
    assert not replace(found, name="n9").answers, "another record begins with none"


def test_requests_come_first_and_the_newest_of_each() -> None:
    counters: Counter[str] = Counter()
    queue = Queue(counters)
    for number, kind in enumerate((1, 3, 1, 3)):
        queue.push(bare(kind, number % 3, number), 1.0)
    queue.push(bare(1, 0, 99), 1.0)
    assert [dhcp.parse(data).xid for data in iter(lambda: queue.pop(1.5), None)] == [3, 1, 99, 2]
    assert counters == {"dhcp.repeated": 1} and not queue and queue.pop(2.0) is None


def test_one_client_by_two_ways_waits_twice() -> None:
    """On the head's own link and by a relay: which of them counts is decided, and not by who came
    last."""
    queue = Queue(Counter())
    queue.push(bare(1), 1.0)
    queue.push(bare(1, giaddr=RELAYS[1]), 1.0)
    queue.push(b"no packet", 1.0)
    queue.push(b"no packet", 1.0)
    assert len(queue) == 4


def test_what_nobody_waits_for_any_more_is_not_answered() -> None:
    counters: Counter[str] = Counter()
    queue = Queue(counters)
    queue.push(bare(1, 0), 1.0)
    queue.push(bare(1, 1), 1.5)
    queue.push(bare(1, 2), 4.0)
    assert queue.pop(1.5 + LATE_S) == bare(1, 2)
    assert queue.pop(1.5 + LATE_S) is None and counters == {"dhcp.late": 2} and not queue


def test_so_many_wait_and_the_oldest_goes() -> None:
    counters: Counter[str] = Counter()
    queue = Queue(counters)
    for number in range(MOST + 10):
        queue.push(
            dhcp.build(DhcpPacket(1, number, number.to_bytes(6, "big") + bytes(10), {53: b"\1"})),
            1.0,
        )
    assert len(queue) == MOST and counters == {"dhcp.crowded": 10}
    assert [dhcp.parse(data).xid for data in iter(lambda: queue.pop(1.0), None)][-1] == 10


async def test_all_that_wait_are_answered_in_turns() -> None:
    """More than one turn takes; and a packet that is none harms no other."""
    rig = Rig()
    recorder = Recorder(FakeLink(), rig.windows, rig.clock)
    server = DhcpServer(CONF, CONF.interface, rig.answers, recorder, rig.clock)
    for number in range(200):
        server.receive(bare(1, 0, 1, giaddr=number.to_bytes(4, "big")))
    server.receive(bytes(28) + MACS[0])
    while server.work():
        pass
    assert recorder.counters["dhcp.received"] == 201 and recorder.counters["dhcp.malformed"] == 1
    assert recorder.counters["dhcp.offered"] + recorder.counters["dhcp.other-network"] == 200


def test_whose_packets_are_read() -> None:
    """Those of nodes, and of those that somebody else admits."""
    rig = Rig()
    stranger = bytes.fromhex("02000000ffff")
    assert [rig.answers.known(mac) for mac in (MACS[0], stranger)] == [True, False]
    rig.answers = Answers(
        rig.nodes, rig.windows, rig.relays, rig.common, rig.clock, admits=stranger.__eq__
    )
    assert [rig.answers.known(mac) for mac in (MACS[0], stranger, MACS[1][:5] + b"\x77")] == [
        True,
        True,
        False,
    ]
