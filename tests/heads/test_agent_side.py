"""What an agent believes of several heads, when it asks all of them, and what it keeps."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import Unreachable, WireError
from layercake.kraken.wire import Datagram, Kind, datagram_epoch, decode, encode, heads_epoch
from minos.agent.head_link.connection import HeadConnection, address_at
from minos.agent.head_link.known_heads import Head, KnownHeads
from minos.agent.head_link.sync import (
    LATELY_S,
    SPREAD_S,
    Called,
    Epochs,
    HelloTimer,
    NewEpoch,
    OutdatedHead,
    SyncCodec,
    TakeOver,
    Wanted,
)
from minos.agent.state import Config
from tests.support.fake_head import FakeHead

NODE, KEY, LAYOUT = bytes(range(16)), b"k" * 32, b"lay1"
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
FIRST = Head("https://192.0.2.1:8443", "192.0.2.1:31415")
SECOND = Head("https://192.0.2.2:8443", "192.0.2.2:31415")
THIRD = Head("https://[fd99::3]:8443", "[fd99::3]:31415")


def from_head(kind: Kind, sequence: int, epoch: int) -> bytes:
    return encode(Datagram(kind, NODE, 77, epoch, sequence, 9, 1, LAYOUT, 0, 0), KEY)


def hello(codec: SyncCodec) -> Datagram:
    return decode(codec.hello(1000, revision=1, changes=0, mask=0, state=0), KEY)


def test_a_head_of_a_lower_epoch_is_not_believed_and_told_why() -> None:
    old, new = datagram_epoch(4, 11), datagram_epoch(5, 22)
    codec = SyncCodec(NODE, 77, KEY, old, LAYOUT)
    assert codec.receive(from_head(Kind.DESIRED, 1, old)) == Wanted(9)
    number = hello(codec).sequence
    assert codec.receive(from_head(Kind.CHALLENGE, number, new)) == NewEpoch(new, 9)
    with pytest.raises(OutdatedHead):
        codec.receive(from_head(Kind.DESIRED, 2, old))
    for before in (datagram_epoch(4, 99), 99):
        with pytest.raises(WireError) as refused:
            codec.receive(from_head(Kind.CHALLENGE, hello(codec).sequence, before))
        assert not isinstance(refused.value, OutdatedHead), (
            "the two would answer each other for ever"
        )
    assert codec.epoch == new and hello(codec).epoch == new
    assert codec.receive(from_head(Kind.DESIRED, 1, new)) == Wanted(9)


def test_a_head_that_was_started_again_in_its_epoch_is_believed() -> None:
    codec = SyncCodec(NODE, 77, KEY, datagram_epoch(4, 11), LAYOUT)
    again = datagram_epoch(4, 12)
    challenge = from_head(Kind.CHALLENGE, hello(codec).sequence, again)
    assert codec.receive(challenge) == NewEpoch(again, 9)


def test_an_epoch_that_came_another_way_is_told_with_the_next_hello() -> None:
    epochs = Epochs()
    codec = SyncCodec(NODE, 77, KEY, datagram_epoch(4, 11), LAYOUT, epochs)
    assert epochs.accept(6) and not epochs.accept(5)
    assert heads_epoch(hello(codec).epoch) == 6
    with pytest.raises(OutdatedHead):
        codec.receive(from_head(Kind.DESIRED, 1, datagram_epoch(4, 11)))
    with pytest.raises(Called):
        codec.receive(from_head(Kind.DESIRED, 1, datagram_epoch(6, 11)))
    with pytest.raises(WireError, match="another epoch"):
        codec.receive(from_head(Kind.DESIRED, 1, datagram_epoch(6, 11)))


def test_what_is_forged_tells_no_epoch() -> None:
    epochs = Epochs(4)
    codec = SyncCodec(NODE, 77, KEY, datagram_epoch(4, 11), LAYOUT, epochs)
    high = datagram_epoch(9, 1)
    for data in (
        from_head(Kind.CHALLENGE, 1, high),  # it answers no HELLO
        from_head(Kind.DESIRED, 1, high)[:-1] + b"\0",
    ):
        with pytest.raises(WireError):
            codec.receive(data)
    assert epochs.highest == 4


@pytest.mark.parametrize(
    ("hello_s", "search_s"), [(0.5, 1.0), (5.0, 1.0), (10.0, 8.0), (60.0, 8.0)]
)
def test_all_heads_are_asked_about_a_second_after_one_has_fallen_silent(
    hello_s: float, search_s: float
) -> None:
    """Again about each second then, and after three times less often where HELLOs are further
    apart: the site is large."""
    timer = HelloTimer(hello_s, lambda: True)
    now = 100.0
    asked: list[tuple[float, bool]] = []
    for _ in range(7):
        asked.append((now - 100.0, timer.searching(now)))
        timer.hello_sent(now, 0.5)
        now = timer.due
    searches = [(second, True) for second in (1.0, 2.0, 3.0, 4.0, 4.0 + search_s)]
    assert asked == [(0.0, False), (0.5, False), *searches]
    timer.answered(now, 0.0)
    assert not timer.searching(now) and timer.due - now == pytest.approx(0.9 * hello_s)


def test_changes_that_are_told_together_are_no_silence() -> None:
    timer = HelloTimer(5.0, lambda: True)
    for now in (100.0, 100.01, 100.02, 100.03):
        assert not timer.searching(now)
        timer.hello_sent(now, 0.5)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        UUID, "n1", "", FIRST.url, FIRST.sync, "", tmp_path / "ca.pem", tmp_path, "boot", "1"
    )


def told(*heads: Head, epoch: int = 1) -> dict[str, Any]:
    return {
        "heads": [{"name": "h", "url": head.url, "sync": head.sync} for head in heads],
        "epoch": epoch,
    }


def test_where_there_is_one_head_nothing_is_kept(config: Config) -> None:
    heads = KnownHeads(config)
    assert heads.learn({"revision": 1}) and not heads.several
    heads.act(FIRST)
    heads.joined("192.0.2.1:9")
    assert heads.in_turn() == [Head(FIRST.url, "192.0.2.1:9")]
    assert list(config.run.iterdir()) == []


def test_the_first_heads_are_those_that_the_node_was_booted_with(config: Config) -> None:
    booted = dataclasses.replace(config, other_heads=((SECOND.url, SECOND.sync),))
    heads = KnownHeads(booted)
    heads.joined("192.0.2.9:9")
    assert heads.in_turn() == [FIRST, SECOND] and heads.several


def test_heads_and_the_highest_epoch_outlive_the_agent(config: Config) -> None:
    heads = KnownHeads(config)
    assert heads.learn(told(SECOND, FIRST, THIRD, epoch=3))
    heads.act(THIRD)
    again = KnownHeads(config)
    assert again.in_turn() == heads.in_turn() == [THIRD, SECOND, FIRST]
    assert again.epochs.highest == 3
    assert not again.learn(told(FIRST, epoch=2)), "an epoch that is over"
    assert again.in_turn()[0] == THIRD
    assert again.epochs.accept(4) and KnownHeads(config).epochs.highest == 4
    assert again.learn({"revision": 7, "epoch": 4}) and again.in_turn() == [THIRD]


@pytest.mark.parametrize(
    "document",
    [
        {"heads": "x"},
        {"heads": [1, {}, {"url": 1, "sync": 2}, {"url": "http://h", "sync": "h:1"}]},
        {"heads": [{"url": "https://h", "sync": "h"}], "epoch": "7"},
        {"heads": None, "epoch": -1},
        [],
        None,
    ],
)
def test_what_is_not_well_formed_is_left_out(config: Config, document: object) -> None:
    heads = KnownHeads(config)
    assert heads.learn(document)
    assert heads.in_turn() == [FIRST] and heads.epochs.highest == 0


def test_what_was_kept_and_is_damaged_counts_as_nothing(config: Config) -> None:
    (config.run / "heads.json").write_text("{")
    assert KnownHeads(config).in_turn() == [FIRST]


class Site:
    """Two heads of one site, and a node that knows both."""

    def __init__(self, path: Path) -> None:
        self.first = FakeHead(path / "pki", UUID)
        self.second = FakeHead(path / "pki", UUID, beside=self.first)
        for head in (self.first, self.second):
            head.key = KEY
        self.heads = [Head(head.url, head.sync) for head in (self.first, self.second)]
        one, two = self.heads
        self.config = Config(
            UUID,
            "n1",
            "",
            one.url,
            one.sync,
            "",
            self.first.authority,
            path,
            "boot",
            "1",
            other_heads=((two.url, two.sync),),
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.first.close()
    found.second.close()


JOIN: tuple[str, str, dict[str, str], bytes] = (
    "POST",
    "/node/v1/join",
    {},
    b'{"token": "", "node": ""}',
)


def test_a_request_goes_to_the_next_head_when_one_says_that_it_does_not_act(site: Site) -> None:
    known = KnownHeads(site.config)
    connection = HeadConnection(site.config, None, known)
    assert connection.request(*JOIN)[0] == 403 and len(site.first.joins) == 1
    site.first.silent = True
    assert connection.request(*JOIN)[0] == 403 and len(site.second.joins) == 1
    assert known.in_turn() == site.heads[::-1], "it is asked first from then on"
    assert site.second.epochs == [None]
    assert known.epochs.accept(3) and connection.request(*JOIN)[0] == 403
    assert site.second.epochs == [None, "3"], "it says which epoch it knows"
    site.second.silent = True
    assert connection.request(*JOIN)[0] == 503
    connection.close()


def test_a_request_goes_to_the_next_head_when_nobody_listens(site: Site, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    away = dataclasses.replace(site.config, head=f"https://127.0.0.1:{port}")
    connection = HeadConnection(away, None)
    assert connection.request(*JOIN)[0] == 403 and len(site.second.joins) == 1
    assert not (tmp_path / "heads.json").exists(), "whose affair it is not only reads"
    connection.close()
    alone = dataclasses.replace(away, other_heads=())
    with pytest.raises(Unreachable):
        HeadConnection(alone, None).request(*JOIN)


def test_images_of_a_head_are_fetched_from_each_of_them_and_others_from_where_they_are() -> None:
    url = "http://192.0.2.1:8080/images/ab?node=n&ticket=x"
    heads = [THIRD, FIRST, SECOND]
    assert address_at(url, heads) == [
        "http://[fd99::3]:8080/images/ab?node=n&ticket=x",
        url,
        "http://192.0.2.2:8080/images/ab?node=n&ticket=x",
    ]
    assert address_at("http://198.51.100.1/x", heads) == ["http://198.51.100.1/x"]


@pytest.mark.parametrize(
    ("hello_s", "revision", "quiet_s", "several", "waits_s"),
    [
        (5.0, 9, LATELY_S, True, SPREAD_S / 2),
        (10.0, 9, LATELY_S, True, 8 * SPREAD_S / 2),  # the site is large
        (5.0, 8, LATELY_S, True, 0.0),  # what it was told last was not written
        (5.0, 9, LATELY_S - 1.0, True, 0.0),  # what it said last may not have been
        (5.0, 9, LATELY_S, False, 0.0),  # a head that is alone was started again
    ],
)
def test_a_node_that_has_no_news_comes_to_another_head_when_others_have_come(
    hello_s: float, revision: int, quiet_s: float, several: bool, waits_s: float
) -> None:
    take_over = TakeOver(hello_s, lambda: several)
    now = 1000.0
    take_over.news(now)
    now += quiet_s
    assert not take_over.is_due(now)
    take_over.begins(NewEpoch(datagram_epoch(5, 1), revision), 9, now, 0.5)
    assert waits_s == 0.0 or not take_over.is_due(now + waits_s - 0.1)
    assert take_over.is_due(now + waits_s) and not take_over.is_due(now + 16 * SPREAD_S)
