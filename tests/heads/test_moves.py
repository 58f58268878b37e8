"""Nodes go from the head that acted to the one that does: two heads, with the sessions of one site,
and the datagrams of a node between them on loopback."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from patience import patience

from layercake.agents import pki
from layercake.kraken.facts import Remembered
from layercake.kraken.wire import datagram_epoch
from minos.agent.head_link.known_heads import Head, KnownHeads
from minos.agent.head_link.link import HeadLink
from minos.agent.head_link.sync_socket import HeadSockets, SyncSocket
from minos.agent.state import Config, Session, parse_endpoint
from tests.support.world import World, opened


class Link(HeadLink):
    """A link whose thread does not run; it counts what it was to do."""

    pulls = moves = 0

    def pull(self) -> None:
        self.pulls += 1

    def head_moved(self) -> None:
        self.moves += 1


class Site:
    """Two heads, of which the first one acts in epoch 1, and node n0 in sync with it."""

    def __init__(self, path: Path, first: World, second: World) -> None:
        self.first, self.second = first, second
        pki.create(path / "pki", "127.0.0.1")
        self.now, self.said = 100.0, list[str]()
        self.places = [
            Head(f"https://127.0.0.{number}:8443", f"127.0.0.1:{world.port}")
            for number, world in enumerate((first, second), 1)
        ]
        one, two = self.places
        first.head.heads.acts(1)
        record = first.node("n0")
        for world in (first, second):
            world.attach("n0")
        node = record.node.id
        self.config = config = Config(
            node, "n0", "", one.url, one.sync, "", path / "pki" / "ca.pem", path, "boot", "1",
            other_heads=((two.url, two.sync),),
        )  # fmt: skip
        self.heads = KnownHeads(config)
        self.link = Link(
            config, None, self.heads, lambda message: None, now=lambda: 0.0, jitter=lambda: 0.5
        )
        session = Session(
            7,
            b"k" * 32,
            first.head.store.epoch,
            record.planner.layout,
            5.0,
            15.0,
            ("127.0.0.1", first.port),
        )
        self.sync = SyncSocket(
            config,
            session,
            self.heads,
            self.link,
            say=self.said.append,
            jitter=lambda: 0.5,
            clock=lambda: self.now,
            clock_ns=lambda: int(self.now * 1e9),
        )

    def hears(self) -> bool:
        """Reads what the heads have sent; whether it is time to tell all anew."""
        self.sync.read()
        return self.sync.takes_over()

    def report(self, busy: str = "FREE") -> None:
        """The agent says HELLO, if it is time or something has changed."""
        layout = self.first.node("n0").planner.layout
        state = layout.pack({"power": "ON", "run": "SYNC", "image": "IDLE", "busy": busy})
        self.sync.hello(revision=1, changes=1, mask=0, state=state)

    def until(self, world: World, seconds: float) -> float:
        """The node speaks as its timer has it, and this head answers, until the node is in sync
        with it; how long that took."""
        began = self.now
        while world.node("n0").value("run") != "SYNC":
            assert self.now - began < seconds
            self.now = max(self.now + 0.01, self.sync.due)
            self.report()
            world.head.sync.read()
            if self.hears():
                self.report()
                world.head.sync.read()
        self.hears()
        return self.now - began


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    for name in ("a", "b", "node"):
        (tmp_path / name).mkdir()
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        found = Site(tmp_path / "node", first, second)
        found.until(first, 1.0)
        yield found
        found.sync.close()


async def test_a_head_that_answers_is_asked_alone(site: Site) -> None:
    for busy in ("BUSY", "FREE", "BUSY"):
        site.now += 3.0
        site.report(busy)
        site.first.head.sync.read()
        assert not site.hears()
    site.second.head.sync.read()
    counters = site.second.head.sync.counters
    assert (
        not any(counters.values()) and site.heads.in_turn() == site.places and not site.link.moves
    )


async def test_a_node_finds_the_next_head_within_two_seconds_of_its_acting(site: Site) -> None:
    """The first head's machine is gone: nothing comes back from it."""
    site.report("BUSY")
    for _ in range(10):
        site.now = max(site.now, site.sync.due)
        site.report("BUSY")
        assert not site.hears()
    site.second.head.heads.acts(2)
    assert site.until(site.second, 2.0) < 2.0
    assert site.heads.in_turn() == site.places[::-1]
    assert KnownHeads(site.config).in_turn() == site.places[::-1], "the next agent knows it too"
    assert site.heads.epochs.highest == 2 and site.link.moves == 1 and site.link.pulls
    assert "agent: the head at https://127.0.0.2:8443 acts now" in site.said


async def test_a_node_that_speaks_regularly_asks_all_heads_before_two_intervals_are_over(
    site: Site,
) -> None:
    began = site.now
    site.second.head.heads.acts(2)
    site.until(site.second, 10.0)
    assert site.now - began < 10.0


async def test_the_head_before_is_not_believed_any_more_and_learns_that_it_acts_no_more(
    site: Site,
) -> None:
    seen: list[int] = []
    site.first.head.heads.on_outdated(seen.append)
    site.second.head.heads.acts(2)
    site.until(site.second, 10.0)
    pulls = site.link.pulls
    record = site.first.node("n0")
    record.cfg_revision += 100
    site.first.head.sync.push(record)
    assert not site.hears() and site.link.pulls == pulls, "what it wants is not done"
    while site.first.head.sync.read():
        pass
    assert seen == [2] and not site.hears(), "and it asks the node for nothing"
    assert site.heads.in_turn()[0] == site.places[1]


async def test_a_head_learns_of_another_by_the_answer_to_what_it_wants(site: Site) -> None:
    """Nothing came to it since: it hears of the other one by what the node says to its datagram."""
    seen: list[int] = []
    site.first.head.heads.on_outdated(seen.append)
    assert site.heads.epochs.accept(2), "another head has told it by TLS"
    site.first.head.sync.push(site.first.node("n0"))
    assert not site.hears()
    site.first.head.sync.read()
    assert seen == [2]


async def test_of_two_heads_that_both_answer_the_later_one_is_followed(site: Site) -> None:
    """The first one was started again and knows nothing of the second; its answer comes first."""
    site.now = site.sync.due
    for _ in range(2):
        site.report("BUSY")
        site.now = max(site.now, site.sync.due)
    site.first.head.store.epoch += 1
    site.second.head.heads.acts(2)
    site.report("BUSY")
    for world in (site.first, site.second):
        world.head.sync.read()
    assert site.hears()
    assert site.heads.in_turn()[0] == site.places[1] and site.heads.epochs.highest == 2


async def test_a_head_that_begins_to_act_calls_a_node_where_the_one_before_has_heard_it(
    site: Site,
) -> None:
    before = site.first.node("n0")
    record = site.second.node("n0")
    record.address = before.address
    record.remembered = Remembered(before.values(), None)
    record.machine = replace(record.machine, held_until=site.second.clock.now + 60)
    site.second.head.heads.acts(2)
    await site.second.head.sync.call_nodes()
    for _ in range(2):  # HELLO; then it takes the CHALLENGE, and says HELLO in the new epoch
        site.hears()
        site.report()
        site.second.head.sync.read()
    assert record.value("run") == "SYNC" and record.address == before.address
    assert site.heads.in_turn() == site.places[::-1]


def test_what_speaks_to_the_heads_has_one_port_and_nobody_else_gets_it() -> None:
    heads = [Head(f"https://127.0.0.{i}:8443", f"127.0.0.{i}:7311") for i in (1, 2)]
    sockets = HeadSockets()
    sockets.follow(heads[:1])
    sockets.follow(heads)
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in heads]
        heard = []
        for end, head in zip(ends, heads, strict=True):
            end.bind(parse_endpoint(head.sync))
            end.settimeout(patience(10))
            sockets.send(head, b"hello")
            heard.append(end.recvfrom(16)[1])
        assert heard[0][1] == heard[1][1]
        for end, head in zip(ends, heads, strict=True):
            end.sendto(head.sync.encode(), heard[0])
        select.select([sockets], [], [], patience(10))
        for head in heads:
            assert sockets.receive(head) == head.sync.encode()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            other = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            other.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("", heard[0][1]))
    sockets.close()


def test_a_head_without_a_route_is_tried_again_and_nobody_else_is_heard_for_it() -> None:
    """Linux refuses to connect to a broadcast address without SO_BROADCAST, as to one without a
    route."""
    here = Head("https://a", "127.0.0.1:7311")
    nowhere = Head("https://b", "255.255.255.255:7311")
    sockets = HeadSockets()
    for _ in range(2):
        sockets.follow([here, nowhere])
        sockets.send(nowhere, b"hello")
        assert sockets.receive(nowhere) is None
    sockets.close()


async def test_datagrams_that_are_sent_again_have_no_more_hellos_said(site: Site) -> None:
    """Recorded from two lives of a head, in turn, they are each of another epoch than the last."""
    record = site.first.node("n0")
    head = site.first.head
    before = head.sync.counters["challenged"]
    for number in range(20):
        head.store.epoch = datagram_epoch(1, 70 + number % 2)
        head.sync.push(record)
        site.sync.read()
    head.sync.read()
    assert head.sync.counters["challenged"] - before == 1
