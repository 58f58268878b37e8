"""Boot windows, claims and disputes by themselves: which claim gets a session, and what people read
of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.agents.joining import GRACE_S, Claim, Dispute, Joining, NoJoin, claim_of
from layercake.fleet.store import Record, Store
from layercake.inventory.schema import Node
from layercake.kraken.errors import Refused
from layercake.kraken.facts import NodeState
from tests.support import production
from tests.support.clock import FakeClock

MAC, IP = "52:54:00:00:00:10", "10.1.0.10"
PLANNER = production.planner()


class Alone:
    """The windows of two nodes, and what is told elsewhere."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.store = Store(self.clock)
        self.ended: list[str] = []
        self.barred: list[tuple[str, str]] = []
        self.joining = Joining(
            self.store,
            self.clock,
            lambda record: self.ended.append(record.name),
            lambda record, why: self.barred.append((record.name, why)),
        )
        for name in ("n0", "n1"):
            node = Node(f"id-{name}", name, (MAC,), IP)
            machine = NodeState.fresh(production.up(PLANNER))
            self.store.adopt(self.store.make(node, PLANNER, machine))
        self.record = self.store.named("n0")

    def claim(self, token: str, **changes: str) -> Claim:
        """The claim of the node itself, but for some changes."""
        facts: dict[str, Any] = {"boot_id": "boot-1", "mac": MAC, "address": IP, **changes}
        return Claim(token, **facts)

    def join(self, token: str, **changes: str) -> None:
        """A claim that is good, and whose session is on disk."""
        self.record.session = self.joining.claim(self.record, self.claim(token, **changes))
        self.joining.spend(self.record)

    def events(self) -> list[tuple[str, str, str, Any]]:
        """(node, kind, text, data) of all events."""
        events = sorted([*self.store.events, *self.store.alarms], key=lambda event: event.id)
        return [(event.node, str(event.kind), event.text, event.data) for event in events]


@pytest.fixture
def alone() -> Alone:
    return Alone()


def refused(alone: Alone, why: NoJoin, claim: Claim) -> None:
    """The claim is refused for this reason, and the node is left as it is."""
    with pytest.raises(Refused) as error:
        alone.joining.claim(alone.record, claim)
    assert error.value.message == f"cannot join n0: {why.value}"
    assert error.value.hint == "power-cycle the node to boot it again"
    assert alone.events()[-1] == (
        "n0",
        "join.refused",
        f"a join from {claim.address} was refused: {why.value}",
        {"boot_id": claim.boot_id, "address": claim.address},
    )
    assert not alone.barred


def disputed(alone: Alone, why: Dispute, claim: Claim) -> None:
    """The claim is disputed for this reason, and the node is left alone from then on."""
    with pytest.raises(Refused) as error:
        alone.joining.claim(alone.record, claim)
    assert error.value.message == f"cannot join n0: {why.value}"
    assert error.value.hint == "a person has to look: see the head's events"
    text = (
        f"two machines claim to be n0: {why.value} (from {claim.address}, MAC "
        f"{claim.mac[:40] or 'not said'})"
    )
    data = {"address": claim.address, "mac": claim.mac[:40]}
    assert alone.events()[-1] == ("n0", "join.disputed", text, data)
    assert alone.barred == [("n0", text)]
    with pytest.raises(Refused, match=NoJoin.NO_WINDOW.value):
        alone.joining.claim(alone.record, claim)


def test_the_reasons_are_these() -> None:
    assert [why.value for why in NoJoin] == [
        "no such node",
        "no boot window is open for it",
        "the token is wrong",
        "the token was used before",
    ]
    assert [why.value for why in Dispute] == [
        "the token of this boot was used before, by another boot",
        "the token of this boot comes with a MAC address that is not the node's",
        "the token of this boot comes from an address that is not the node's",
        "the boot script was asked for again after the node had joined with it",
    ]


def test_a_right_token_is_good_for_a_session_of_its_own(alone: Alone) -> None:
    token = alone.joining.open(alone.record, 60.0)
    alone.clock.now += 7.0
    session = alone.joining.claim(alone.record, alone.claim(token, mac=MAC.upper()))
    assert (session.boot_id, session.joined, session.layout) == ("boot-1", 1007.0, PLANNER.layout)
    assert len(session.key) == 32 and len(token) == 32 and not alone.events()
    other = alone.joining.claim(alone.record, alone.claim(token))
    assert other.key != session.key and other.number != session.number, "it is not spent yet"


def test_a_claim_is_shown_without_its_token(alone: Alone) -> None:
    assert "secret-token" not in repr(alone.claim("secret-token"))


def test_a_window_has_its_time_and_some_grace(alone: Alone) -> None:
    token = alone.joining.open(alone.record, 60.0)
    assert GRACE_S == 30.0
    alone.clock.now += 60.0 + GRACE_S
    alone.joining.claim(alone.record, alone.claim(token))
    alone.clock.now += 0.1
    refused(alone, NoJoin.NO_WINDOW, alone.claim(token))


def test_a_window_that_is_opened_again_is_the_same_until_it_is_used_or_over(alone: Alone) -> None:
    token = alone.joining.open(alone.record, 60.0)
    alone.clock.now += 50.0
    assert alone.joining.open(alone.record, 60.0) == token
    alone.clock.now += 60.0 + GRACE_S
    alone.join(token)
    another = alone.joining.open(alone.record, 60.0)
    assert another != token and alone.ended == ["n0"] and alone.record.session is None
    alone.clock.now += 60.0 + GRACE_S
    assert alone.joining.open(alone.record, 60.0) == another
    alone.clock.now += 60.0 + GRACE_S + 0.1
    assert alone.joining.open(alone.record, 60.0) != another
    alone.joining.close(alone.record)
    refused(alone, NoJoin.NO_WINDOW, alone.claim(another))


@pytest.mark.parametrize("wrong", ["", "x", "another node's"])
def test_wrong_tokens_are_refused_and_use_nothing_up(alone: Alone, wrong: str) -> None:
    token = alone.joining.open(alone.record, 60.0)
    other = alone.joining.open(alone.store.named("n1"), 60.0)
    wrong = other if wrong == "another node's" else wrong
    refused(alone, NoJoin.WRONG_TOKEN, alone.claim(wrong))
    assert alone.joining.claim(alone.record, alone.claim(token)).boot_id == "boot-1"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mac": "52:54:00:00:00:99"}, Dispute.OTHER_MAC),
        ({"mac": ""}, Dispute.OTHER_MAC),
        ({"mac": "y" * 99}, Dispute.OTHER_MAC),
        ({"address": "10.1.0.99"}, Dispute.OTHER_ADDRESS),
    ],
)
def test_a_right_token_from_elsewhere_is_a_dispute(
    alone: Alone, changes: dict[str, str], why: Dispute
) -> None:
    disputed(alone, why, alone.claim(alone.joining.open(alone.record, 60.0), **changes))


def test_a_token_that_another_boot_uses_once_more_is_a_dispute(alone: Alone) -> None:
    token = alone.joining.open(alone.record, 60.0)
    alone.join(token)
    disputed(alone, Dispute.USED_TOKEN, alone.claim(token, boot_id="boot-2"))
    assert alone.ended == ["n0"] and alone.record.session is None


def test_the_same_boot_gets_its_session_again_until_it_was_heard(alone: Alone) -> None:
    token = alone.joining.open(alone.record, 60.0)
    alone.join(token)
    assert alone.joining.claim(alone.record, alone.claim(token)) is alone.record.session
    alone.record.last_seen = 1000.0
    refused(alone, NoJoin.USED_TOKEN, alone.claim(token))


def test_a_session_that_ends_leaves_nothing_behind(alone: Alone) -> None:
    alone.joining.end(alone.record)
    assert not alone.ended and not alone.store.dirty, "there was none"
    alone.join(alone.joining.open(alone.record, 60.0))
    alone.record.address, alone.record.api_port = (IP, 7), 8
    alone.joining.end(alone.record)
    left: tuple[object, ...] = (alone.record.session, alone.record.address, alone.record.api_port)
    assert left == (None, None, 0)
    assert alone.ended == ["n0"] and alone.store.dirty == {"id-n0"}


def test_a_script_that_is_asked_for_after_the_join_is_a_dispute(alone: Alone) -> None:
    alone.joining.asked_again(alone.record, "10.1.0.99")
    token = alone.joining.open(alone.record, 60.0)
    alone.joining.asked_again(alone.record, "10.1.0.99")
    assert not alone.events() and not alone.barred, "nobody has joined by it yet"
    alone.join(token)
    alone.clock.now += 60.0 + GRACE_S
    alone.joining.asked_again(alone.record, "10.1.0.99")
    ((_, kind, text, data),) = alone.events()
    assert kind == "join.disputed" and data == {"address": "10.1.0.99", "mac": ""}
    assert text.endswith("with it (from 10.1.0.99, MAC not said)") and Dispute.SCRIPT.value in text
    assert alone.record.session is None and len(alone.barred) == 1


def test_a_script_that_is_asked_for_when_the_window_is_over_is_none(alone: Alone) -> None:
    alone.join(alone.joining.open(alone.record, 60.0))
    alone.clock.now += 60.1 + GRACE_S
    alone.joining.asked_again(alone.record, "10.1.0.99")
    assert not alone.events() and alone.record.session is not None


def test_a_token_of_no_window_cannot_be_spent(alone: Alone) -> None:
    alone.joining.spend(alone.record)
    refused(alone, NoJoin.NO_WINDOW, alone.claim("x"))


# -- what a claim is

BODY = {"node": "id-n0", "token": "t", "boot_id": "b", "mac": MAC, "version": "1"}


def read(alone: Alone, body: object) -> tuple[Record, Claim]:
    return claim_of(alone.store, body, IP)


def test_a_claim_is_of_five_texts(alone: Alone) -> None:
    assert read(alone, {**BODY, "more": 5}) == (alone.record, Claim("t", "b", MAC, IP))
    assert read(alone, {**BODY, "token": "t" * 200})[1].token == "t" * 200
    for key in BODY:
        bad: list[object] = [None, 5, "x" * 201]
        for value in bad:
            with pytest.raises(Refused, match=r"^cannot join: the claim is not well-formed"):
                read(alone, {**BODY, key: value})
    bodies: list[object] = [None, [], "text"]
    for body in bodies:
        with pytest.raises(Refused, match=r"^cannot join: the claim is not well-formed"):
            read(alone, body)
    assert not alone.events()


def test_a_claim_of_no_node_is_refused_and_told(alone: Alone) -> None:
    with pytest.raises(Refused, match=r"^cannot join: no such node$"):
        read(alone, {**BODY, "node": "id-n9"})
    assert alone.events() == [
        ("", "join.refused", f"a join from {IP} was refused: no such node", {"address": IP})
    ]
