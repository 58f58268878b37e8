"""What is wrong with heads and their store is told when it lasts, once, and when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from layercake.features.heads.troubles import KINDS, LASTS_S, Trouble, Troubles, roles, troubles_of
from layercake.heads.etcd import MemberStatus
from layercake.heads.site import HeadsShown
from layercake.heads.standby import HeadSays

NOW = 1e9
ONE = HeadSays("head1", "", "0.3.1", True, 7000, "", NOW)
TWO = HeadSays("head2", "", "0.3.1", False, 7000, "", NOW)
MEMBER = MemberStatus("https://10.0.0.1:2379")
MEMBERS = [MEMBER, replace(MEMBER, endpoint="https://10.0.0.2:2379"), MEMBER]
WELL = HeadsShown("head1", "head1", 3, 7000, [ONE, TWO], MEMBERS, own_store=True)
KNOWN = ("head1", "head2")
HERE = "`journalctl -u layercake` on head2"


def two(**changes: object) -> dict[str, object]:
    """The second head is other than it should be."""
    return {"heads": [ONE, msgspec.structs.replace(TWO, **changes)]}


def member(**changes: Any) -> dict[str, object]:
    """A member of the store is other than it should be."""
    return {"members": [replace(MEMBER, **changes), *MEMBERS[1:]]}


def test_nothing_is_wrong_with_heads_that_are_well() -> None:
    assert [*troubles_of(WELL, KNOWN, NOW)] == []


@pytest.mark.parametrize(
    ("changes", "kind", "words", "helps"),
    [
        ({"heads": [ONE]}, "away", "head2 is away", "`systemctl start layercake` on it"),
        (
            {"trouble": "it does not answer", "heads": [ONE]},
            "store",
            "no head may change anything: it does not answer",
            "`systemctl restart layercake-store` on each machine",
        ),
        (
            member(trouble="it is refused"),
            "member",
            "is down: it is refused",
            "`systemctl restart layercake-store` on 10.0.0.1",
        ),
        (member(alarms=("NOSPACE",)), "full", "at 10.0.0.1 is full", "--quota-backend-bytes"),
        (member(alarms=("CORRUPT",)), "member", "the alarm CORRUPT", "`layercake heads remove"),
        (member(fsync_s=0.128), "slow", "at 10.0.0.1 is slow", "`layercake check --only heads`"),
        (member(learner=True), "votes", "2 of 3 votes", "`layercake heads invite witness1"),
        (member(certificate_ends=NOW + 86400), "certificate", "10.0.0.1 ends soon", "heads invite"),
        (
            two(certificate_ends=NOW + 86400),
            "certificate",
            "head2",
            "`layercake heads invite head2",
        ),
        (two(trouble="its disk is full"), "head", "head2: its disk is full", HERE),
        (two(entry=3), "behind", "head2 is far behind", HERE),
        (two(behind_s=60.0), "behind", "head2 is far behind", HERE),
        (two(files="other"), "files", "head2 has not all files", HERE),
        (two(consoles="its disk is full"), "consoles", "head2 does not copy the logs", HERE),
        (two(at=NOW - 3600), "clock", "clock of head2", "`timedatectl set-ntp true` on head2"),
        (two(version="0.3.0"), "version", "head2 has version 0.3.0", "upgrade layercake` on head2"),
        (two(version="0.10.0"), "version", "head2 has", "upgrade layercake` on head1"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_each_trouble_has_its_words_and_what_helps(
    changes: dict[str, object], kind: str, words: str, helps: str
) -> None:
    (wrong,) = troubles_of(msgspec.structs.replace(WELL, **changes), KNOWN, NOW)
    assert wrong.kind == kind and kind in KINDS
    assert words in wrong.text
    assert helps in wrong.helps and "`" in wrong.line


def test_an_etcd_of_the_sites_own_is_not_ours_to_start_and_needs_no_vote_of_ours() -> None:
    shown = msgspec.structs.replace(WELL, own_store=False, **member(trouble="it is refused"))
    (wrong,) = troubles_of(shown, KNOWN, NOW)
    assert "layercake-store" not in wrong.helps and "etcdctl" in wrong.helps
    fewer = msgspec.structs.replace(WELL, own_store=False, members=[MEMBER])
    assert [*troubles_of(fewer, KNOWN, NOW)] == []


def test_in_a_full_store_heads_are_neither_away_nor_late_with_their_clocks() -> None:
    shown = msgspec.structs.replace(WELL, **member(alarms=("NOSPACE",)), **two(at=NOW - 60))
    assert [one.kind for one in troubles_of(shown, (*KNOWN, "head3"), NOW)] == ["full"]


def test_roles_are_in_a_few_words_the_leader_first() -> None:
    three = msgspec.structs.replace(TWO, head="head0", entry=1, files="x")
    shown = msgspec.structs.replace(WELL, heads=[three, ONE, TWO], retired=["head2"])
    assert roles(shown, (*KNOWN, "head4")) == [
        "head1 leads",
        "head0 follows, 6999 entries behind, without all files",
        "head2 follows, retired",
        "head4 is away",
    ]
    away = msgspec.structs.replace(WELL, heads=[ONE], trouble="no answer")
    assert roles(away, KNOWN) == ["head1 leads", "head2 cannot be seen"]


def test_what_passes_is_not_told_and_what_lasts_is_told_once() -> None:
    now = [0.0]
    told: list[list[Trouble]] = []
    troubles = Troubles(lambda: now[0], lambda lasting: told.append(list(lasting)))
    one = Trouble("member", "a", "b")
    for at, wrong in ((0.0, [one]), (1.0, []), (2.0, [one]), (2.0 + LASTS_S, [one])):
        now[0] = at
        troubles.update(wrong)
    now[0] += 1.0
    other = one._replace(text="in other words")
    troubles.update([other])
    assert told == [[one]] and troubles.lasting == [other]
    troubles.update([one._replace(lasts_s=60.0)])
    assert told == [[one], []], "what may last longer is waited for"
    now[0] += 60.0
    troubles.update([one._replace(lasts_s=60.0)])
    assert len(told) == 3
