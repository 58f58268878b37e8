"""What is an outage: pure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from layercake.features.guard import outage
from layercake.features.guard.outage import (
    GATHER_S,
    SITE,
    Outage,
    Outages,
    Whole,
    is_outage,
    together,
    whole,
)
from layercake.features.guard.settings import GuardSettings
from tests.support.clock import FakeClock

SETTINGS = GuardSettings()


def look(
    outages: Mapping[str, Outage],
    domains: Mapping[str, set[str]],
    silent: Mapping[str, float],
    settings: GuardSettings,
    now: float,
) -> dict[str, Outage]:
    """Of domains with such nodes."""
    by_domain = {
        name: {node: silent[node] for node in nodes & silent.keys()}
        for name, nodes in domains.items()
    }
    return outage.outages_now(
        outages, {name: len(nodes) for name, nodes in domains.items()}, by_domain, settings, now
    )


@pytest.mark.parametrize(
    ("silent", "members", "yes"),
    [
        (0, 0, False),
        (1, 1, False),
        (2, 2, True),
        (1, 2, False),
        (3, 16, False),
        (4, 16, True),
        (4, 41, False),
        (5, 41, True),
        (5, 50, False),
        (3, 3, True),
    ],
)
def test_more_than_three_and_more_than_a_tenth_or_all(silent: int, members: int, yes: bool) -> None:
    assert is_outage(silent, members, SETTINGS) is yes


def test_only_what_falls_silent_together_counts() -> None:
    assert together({"a": 0.0, "b": 1000.0, "c": 1050.0}, 90.0) == {"b": 1000.0, "c": 1050.0}


def test_nodes_that_died_one_by_one_over_days_are_no_outage() -> None:
    members = {f"n{i}" for i in range(20)}
    silent = {f"n{i}": i * 86400.0 for i in range(8)}
    assert look({}, {SITE: members}, silent, SETTINGS, 8 * 86400.0) == {}


def test_a_rack_that_is_gone_is_an_outage_of_the_rack_and_its_end_is_seen() -> None:
    rack, others = {f"r{i}" for i in range(4)}, {f"n{i}" for i in range(100)}
    domains = {SITE: rack | others, "rack": rack}
    silent = dict.fromkeys(rack, 100.0)
    found = look({}, domains, silent, SETTINGS, 120.0)
    assert set(found) == {"rack"} and found["rack"].silent == rack
    found = look(found, domains, dict.fromkeys(("r0",), 100.0), SETTINGS, 130.0)
    assert found["rack"].silent == {"r0"}, "three are back: the fourth may be a moment behind them"
    assert look(found, domains, {}, SETTINGS, 131.0) == {}
    late = look(
        found, domains, dict.fromkeys(("r0",), 100.0), SETTINGS, 130.0 + SETTINGS.outage_settle_s
    )
    assert late == {}, "one that stays away is a silent node like any other"


def test_an_outage_of_which_some_came_back_is_over_when_no_other_does() -> None:
    members = {f"n{i}" for i in range(20)}
    silent = dict.fromkeys(members, 0.0)
    found = look({}, {SITE: members}, silent, SETTINGS, 10.0)
    silent = {f"n{i}": 0.0 for i in range(10)}
    found = look(found, {SITE: members}, silent, SETTINGS, 20.0)
    assert len(found[SITE].silent) == 10
    found = look(found, {SITE: members}, silent, SETTINGS, 20.0 + SETTINGS.outage_settle_s - 1)
    assert found
    assert look(found, {SITE: members}, silent, SETTINGS, 20.0 + SETTINGS.outage_settle_s) == {}


def dark(domain: str, nodes: range, members: int, since: float = 0.0) -> Outage:
    return Outage(domain, since, frozenset(f"n{number}" for number in nodes), members)


def test_nodes_that_fall_silent_now_and_then_do_not_keep_an_outage_open() -> None:
    """A site that flaps: each that falls silent meanwhile is held, but does not put off the end."""
    nodes = {f"n{i}" for i in range(100)}
    silent = dict.fromkeys(sorted(nodes)[:40], 0.0)
    outages = look({}, {SITE: nodes}, silent, SETTINGS, 10.0)
    del silent["n0"]
    outages = look(outages, {SITE: nodes}, silent, SETTINGS, 100.0)
    now = 100.0
    flaps = False
    while outages and now < 10 * SETTINGS.outage_settle_s:
        now += SETTINGS.outage_settle_s / 4
        flaps = not flaps
        seen = silent | ({"n99": now} if flaps else {})
        outages = look(outages, {SITE: nodes}, seen, SETTINGS, now)
        assert not outages or seen.keys() == outages[SITE].silent, "all of them are held"
    assert now == 100.0 + SETTINGS.outage_settle_s


def test_the_rest_of_an_outage_that_is_over_is_no_new_one() -> None:
    clock = FakeClock(10.0)
    told: list[tuple[str, bool]] = []
    found = Outages(SETTINGS, clock, lambda one, text, over: told.append((text, over)))
    silent = {f"n{i}": 0.0 for i in range(40)}
    for _ in range(2):
        found.update({SITE: 100}, {SITE: silent})
        clock.now += GATHER_S
    del silent["n0"]
    while clock.now < 5 * SETTINGS.outage_settle_s:
        found.update({SITE: 100}, {SITE: silent})
        clock.now += 1.0
    assert [over for _, over in told] == [False, True] and not found.by_domain
    silent |= {f"n{i}": clock.now for i in range(50, 90)}
    found.update({SITE: 100}, {SITE: silent})
    assert found.by_domain[SITE].silent == {f"n{i}" for i in range(50, 90)}, "others are another"


def test_another_wave_while_an_outage_recedes_makes_it_go_on() -> None:
    nodes = {f"n{i}" for i in range(100)}
    outages = look({}, {SITE: nodes}, dict.fromkeys(sorted(nodes)[:40], 0.0), SETTINGS, 10.0)
    left = dict.fromkeys(sorted(nodes)[:20], 0.0)
    outages = look(outages, {SITE: nodes}, left, SETTINGS, 100.0)
    again = left | dict.fromkeys(sorted(nodes)[20:60], 110.0)
    outages = look(outages, {SITE: nodes}, again, SETTINGS, 111.0)
    late = 110.0 + 2 * SETTINGS.outage_settle_s
    outages = look(outages, {SITE: nodes}, again, SETTINGS, late)
    assert outages[SITE].silent == again.keys(), "nobody of the second wave has come back"
    outages = look(outages, {SITE: nodes}, left, SETTINGS, late + 1)
    assert outages
    assert not look(outages, {SITE: nodes}, left, SETTINGS, late + 2 + SETTINGS.outage_settle_s)


def test_an_outage_of_the_site_holds_those_of_its_racks_and_rows() -> None:
    racks = [dark(f"rack{r}", range(r * 40, r * 40 + 40), 40, since=r * 2.0) for r in range(3)]
    row = dark("row", range(80), 160, since=1.0)
    of_before = dark("rack9", range(400, 404), 40, since=-3600.0)
    site = dark(SITE, range(120), 1000, since=5.0)
    found = whole([*racks, of_before, site, row], 90.0)
    assert [(one.outage, one.domains) for one in found] == [
        (site, ("rack0", "rack1", "rack2", "row")),
        (of_before, ()),
    ]


def test_of_two_places_with_the_same_dark_nodes_the_smaller_says_more() -> None:
    rack, site = dark("rack", range(4), 4), dark(SITE, range(4), 20)
    assert [(one.outage, one.domains) for one in whole([site, rack], 90.0)] == [(rack, ())]


def test_outages_of_other_times_or_with_other_nodes_stand_for_themselves() -> None:
    old, new = dark("a", range(4), 4, since=0.0), dark(SITE, range(20), 100, since=1000.0)
    assert {one.outage.domain for one in whole([old, new], 90.0)} == {"a", SITE}
    left, right = dark("left", range(8), 8), dark("right", range(4, 12), 8)
    assert len(whole([left, right], 90.0)) == 2


class Dark:
    """A site of two racks whose nodes are all silent, and what was told of it, with whether it was
    its end."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[str, bool]] = []
        self.outages = Outages(SETTINGS, lambda: self.now, self._note)
        left = dict.fromkeys((f"l{i}" for i in range(4)), 0.0)
        right = dict.fromkeys((f"r{i}" for i in range(4)), 5.0)
        self.silent = {"left": left, "right": {}, SITE: left}
        self.pass_time(GATHER_S)
        self.silent = {"left": left, "right": right, SITE: left | right}
        self.pass_time(GATHER_S)

    def _note(self, one: Whole, text: str, over: bool) -> None:
        self.told.append((one.outage.domain, over))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.outages.update({"left": 4, "right": 4, SITE: 20}, self.silent)


def test_what_a_person_ends_is_over_for_whoever_was_told_of_a_part_of_it() -> None:
    site = Dark()
    assert site.told == [("left", False), (SITE, False)]
    site.outages.end(SITE)
    assert site.told[2:] == [("left", True)], "the end of the site's own is told by who ends it"
    site.outages.end(SITE)  # it was over before that was written
    site.pass_time(GATHER_S)
    assert site.outages.whole == [] and len(site.told) == 3, "the same silence is no other outage"
    site.silent = {}
    site.pass_time(1.0)
    site.silent = {"left": dict.fromkeys((f"l{i}" for i in range(4)), site.now)}
    site.silent[SITE] = site.silent["left"]
    site.pass_time(GATHER_S)
    assert site.told[3:] == [("left", False)], "they were back, and are gone again"


def test_outages_are_shown_to_a_tenth_of_a_second_and_of_the_nodes_that_may_be_seen() -> None:
    site = Dark()
    site.pass_time(0.26)
    names = {"l0": "n0", "r3": "n3"}
    (view,) = site.outages.view(names, some=False)
    assert view == {
        "domain": "",
        "where": "the site",
        "domains": ["left", "right"],
        "seconds": 20.3,
        "silent": 8,
        "members": 20,
        "nodes": ["n0", "n3"],
    }
    assert site.outages.view({"x": "n9"}, some=True) == []
    (view,) = site.outages.view({"l0": "n0"}, some=True)
    assert (view["domains"], view["nodes"], view["silent"]) == ([], ["n0"], 8)
