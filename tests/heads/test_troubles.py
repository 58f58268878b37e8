"""What is wrong with heads and their store is told when it lasts, once, and when it is over."""

from __future__ import annotations

import msgspec
import pytest

from layercake.heads.etcd import MemberStatus
from layercake.heads.site import HeadsShown
from layercake.heads.standby import HeadSays
from layercake.heads.troubles import LASTS_S, Troubles, troubles_of

NOW = 1000.0
ONE = HeadSays("head1", "", "1", True, 7000, "", NOW)
TWO = HeadSays("head2", "", "1", False, 7000, "", NOW)
WELL = HeadsShown("head1", "head1", 3, 7000, [ONE, TWO], [MemberStatus("https://a:2379")])
KNOWN = ("head1", "head2")


def test_nothing_is_wrong_with_heads_that_are_well() -> None:
    assert [*troubles_of(WELL, KNOWN, NOW)] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heads": [ONE]}, "head2 is away: it cannot take over"),
        ({"trouble": "the store does not answer", "heads": [ONE]}, "the store does not answer"),
        ({"members": [MemberStatus("a", trouble="a: refused")]}, "is down: a: refused"),
        ({"members": [MemberStatus("a", alarms=("NOSPACE",))]}, "has the alarm NOSPACE"),
        (
            {"heads": [ONE, msgspec.structs.replace(TWO, trouble="its disk is full")]},
            "head2: its disk is full",
        ),
        ({"heads": [ONE, msgspec.structs.replace(TWO, entry=3)]}, "head2 is far behind"),
        ({"heads": [ONE, msgspec.structs.replace(TWO, at=NOW - 3600)]}, "clock of head2"),
    ],
)
def test_each_trouble_has_its_words(changes: dict[str, object], said: str) -> None:
    wrong = [*troubles_of(msgspec.structs.replace(WELL, **changes), KNOWN, NOW)]
    assert len(wrong) == 1
    assert said in wrong[0]


def test_what_passes_is_not_told_and_what_lasts_is_told_once() -> None:
    now = [0.0]
    told: list[list[str]] = []
    troubles = Troubles(lambda: now[0], told.append)
    for at, wrong in ((0.0, ["a"]), (1.0, []), (2.0, ["a"]), (2.0 + LASTS_S, ["a"])):
        now[0] = at
        troubles.update(wrong)
    now[0] += 1.0
    troubles.update(["a"])
    assert (told, troubles.lasting) == ([["a"]], ["a"])
    troubles.update([])
    assert told == [["a"], []]
