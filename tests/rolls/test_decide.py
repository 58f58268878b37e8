"""What a roll decides, rule by rule, on a pretended cluster under a fake clock."""

from __future__ import annotations

import pytest

from layercake.features.rolls import decide
from layercake.features.rolls.facts import (
    STAGE_WIDE,
    STAGE_WIDTH,
    Amount,
    NodePhase,
    Phase,
    Plan,
    describe,
    parse_amount,
)
from layercake.kraken.errors import InputError, Refused
from tests.support.rollcluster import Cluster, Member


def cluster(count: int, plan: Plan, **members: Member) -> Cluster:
    return Cluster({f"n{i}": members.get(f"n{i}", Member()) for i in range(count)}, plan)


def test_nothing_switches_before_every_node_has_the_new_content() -> None:
    found = cluster(4, Plan(), n3=Member(stage_s=60))
    found.run(until=lambda: bool(found.new()))
    assert found.now >= 1060
    assert found.new() == {"n0", "n1", "n2", "n3"}
    found.run()
    assert found.roll.state is Phase.DONE
    assert set(found.stands().values()) == {"done"}


@pytest.mark.parametrize(("stage_s", "most"), [(1.0, STAGE_WIDE), (30.0, STAGE_WIDTH)])
def test_more_nodes_stage_at_once_where_that_is_quick(stage_s: float, most: int) -> None:
    """Image servers bear so many; content that is nearly there asks nothing of them. The first ones
    show which it is."""
    found = cluster(
        3000, Plan(), **{f"n{i}": Member(stage_s=0.0 if i < 10 else stage_s) for i in range(3000)}
    )
    seen = []
    while found.roll.state is Phase.STAGING:
        found.step()
        seen.append(sum(stand == "staging" for stand in found.stands().values()))
        found.pass_time(0.5)
    assert seen[0] <= STAGE_WIDTH and max(seen) <= most and max(seen) > 0.9 * most


def test_batches_go_one_after_the_other_each_through_its_gate() -> None:
    found = cluster(10, Plan(batch=Amount(30, percent=True), health_s=5.0))
    sizes: list[int] = []
    while not found.roll.over:
        found.run(until=lambda: len(found.new()) != sum(sizes))
        if len(found.new()) != sum(sizes):
            sizes.append(len(found.new()) - sum(sizes))
    assert sizes == [3, 3, 3, 1]
    assert found.now > 1000 + 4 * 5.0
    assert found.notes.count("roll.batch") == 4


def test_no_more_nodes_switch_than_may_be_unavailable() -> None:
    found = cluster(9, Plan(batch=Amount(6), max_unavailable=Amount(2)))
    found.run()
    assert (found.roll.state, found.most_down) == (Phase.DONE, 2)


def test_the_canary_goes_alone_and_a_bad_one_stops_all() -> None:
    found = cluster(
        8, Plan(batch=Amount(50, percent=True), canary=1, health_s=5.0), n0=Member(bad="later")
    )
    found.run()
    assert found.roll.state is Phase.FAILED
    assert "n0 unhealthy" in found.roll.reason
    assert found.stands() == {"n0": "rolled back", **{f"n{i}": "skipped" for i in range(1, 8)}}
    assert [m.switches for m in found.members.values()] == [2, 0, 0, 0, 0, 0, 0, 0]


def test_a_failed_gate_takes_back_its_own_batch_only() -> None:
    found = cluster(8, Plan(batch=Amount(2), health_s=3.0), n5=Member(bad="at once"))
    found.run()
    assert found.roll.state is Phase.FAILED
    stands = found.stands()
    assert [stands[f"n{i}"] for i in range(8)] == ["done"] * 4 + ["rolled back"] * 2 + [
        "skipped"
    ] * 2
    assert found.new() == {"n0", "n1", "n2", "n3"}


def test_sound_nodes_go_back_no_more_at_a_time_than_may_be_unavailable() -> None:
    found = cluster(
        6, Plan(batch=Amount(6), max_unavailable=Amount(2), health_s=30.0), n5=Member(bad="later")
    )
    found.run()
    assert set(found.stands().values()) == {"rolled back"}
    assert found.most_sound_down == 2


def test_on_failure_pause_waits_for_a_person() -> None:
    found = cluster(
        4, Plan(batch=Amount(1), health_s=3.0, on_failure="pause"), n1=Member(bad="at once")
    )
    found.run()
    assert found.roll.state is Phase.PAUSED
    assert "n1" in found.roll.reason
    assert found.new() == {"n0", "n1"}, "nothing goes on, nothing goes back"
    found.roll, actions = decide.resume(found.roll, "a person", found.now)
    found.obey(actions)
    found.run()
    assert found.roll.state is Phase.FAILED
    assert found.stands() == {"n0": "done", "n1": "failed", "n2": "done", "n3": "done"}


def test_a_busy_node_waits_and_holds_up_nobody() -> None:
    found = cluster(4, Plan(batch=Amount(2)), n0=Member(busy=(0, 500)))
    found.run(until=lambda: found.new() == {"n1", "n2", "n3"})
    assert found.now < 1060
    assert found.stands()["n0"] == "busy"
    found.run()
    assert found.roll.state is Phase.DONE
    assert found.now >= 1500
    assert found.members["n0"].switches == 1


def test_a_node_that_becomes_busy_after_its_turn_came_is_taken_back_and_rolled_later() -> None:
    found = cluster(2, Plan(), n0=Member(switch_s=3.0, busy=(2, 100)))
    found.run(until=lambda: found.stands()["n0"] == "busy")
    assert not found.members["n0"].wants_new
    assert found.roll.nodes["n0"].batch == 0
    found.run()
    assert found.roll.state is Phase.DONE
    assert found.stands() == {"n0": "done", "n1": "done"}


def test_a_gate_waits_for_the_health_check() -> None:
    found = cluster(2, Plan(batch=Amount(1), health_s=0.0), n0=Member(healthy_s=40.0))
    found.run(until=lambda: "n1" in found.new())
    assert found.now >= 1040
    found.run()
    assert found.roll.state is Phase.DONE
    never = cluster(2, Plan(batch=Amount(1), health_s=5.0), n0=Member(healthy_s=99_999.0))
    never.run()
    assert never.roll.state is Phase.FAILED
    assert "n0 its health check did not pass" in never.roll.reason
    assert never.new() == set()


def test_inventory_stages_follow_each_other_each_with_its_gate() -> None:
    members = {f"n{i}": Member() for i in range(6)}
    found = Cluster(
        members, Plan(health_s=10.0), {"n0": 0, "n1": 0, "n2": 1, "n3": 1, "n4": 2, "n5": 2}
    )
    found.run(until=lambda: "n2" in found.new())
    assert found.new() == {"n0", "n1", "n2", "n3"}
    assert found.now >= 1010
    found.run()
    assert found.notes.count("roll.stage") == 2
    assert found.roll.state is Phase.DONE


def test_a_bad_image_never_leaves_the_first_stage() -> None:
    members = {f"n{i}": Member(bad="later") for i in range(4)}
    found = Cluster(members, Plan(health_s=10.0), {"n0": 0, "n1": 1, "n2": 1, "n3": 1})
    found.run()
    assert [m.switches for m in members.values()] == [2, 0, 0, 0]


def test_a_busy_node_does_not_hold_up_the_next_stage_but_a_stage_of_only_busy_ones_does() -> None:
    members = {"n0": Member(), "n1": Member(busy=(0, 300)), "n2": Member()}
    found = Cluster(members, Plan(), {"n0": 0, "n1": 0, "n2": 1})
    found.run(until=lambda: "n2" in found.new())
    assert found.now < 1100
    found.run()
    assert found.stands() == {"n0": "done", "n1": "done", "n2": "done"}
    alone = Cluster({"n0": Member(busy=(0, 300)), "n1": Member()}, Plan(), {"n0": 0, "n1": 1})
    alone.run(until=lambda: "n1" in alone.new())
    assert alone.now >= 1300


def test_a_node_that_is_lost_while_it_switches_fails_its_batch() -> None:
    found = cluster(3, Plan(batch=Amount(3), health_s=20.0), n1=Member(away=(4, 9000)))
    found.run()
    assert found.roll.state is Phase.FAILED
    assert found.stands() == {"n0": "rolled back", "n1": "failed", "n2": "rolled back"}
    assert found.new() == set(), "also the lost one boots the images from before"


def test_a_node_that_is_away_is_passed_over_and_boots_the_new_images_once_they_are_proven() -> None:
    found = cluster(3, Plan(health_s=5.0), n2=Member(away=(0, 9000)))
    found.run()
    assert found.roll.state is Phase.DONE
    assert found.stands()["n2"] == "skipped"
    assert found.new() == {"n0", "n1", "n2"}
    bad = cluster(3, Plan(health_s=5.0), n0=Member(bad="later"), n2=Member(away=(0, 9000)))
    bad.run()
    assert bad.new() == set()


def test_a_node_that_boots_meanwhile_stages_again() -> None:
    found = cluster(
        3, Plan(batch=Amount(1), health_s=30.0), n2=Member(away=(5, 20), boots_when_away=True)
    )
    found.run()
    assert found.roll.state is Phase.DONE
    assert set(found.stands().values()) == {"done"}


def test_staging_is_tried_again_then_the_node_is_passed_over() -> None:
    found = cluster(2, Plan(), n1=Member(stage_failures=2))
    found.run()
    assert set(found.stands().values()) == {"done"}
    hopeless = cluster(2, Plan(), n1=Member(stage_failures=99))
    hopeless.run()
    assert hopeless.stands() == {"n0": "done", "n1": "skipped"}
    assert hopeless.new() == {"n0"}, "content that a node cannot hold is not wanted of it"
    strict = cluster(2, Plan(on_stage_failure="fail"), n1=Member(stage_failures=99))
    strict.run()
    assert strict.roll.state is Phase.FAILED
    assert strict.new() == set()


def test_actions_that_a_killed_head_did_not_carry_out_are_asked_for_again() -> None:
    found = cluster(4, Plan(batch=Amount(2)))
    found.step()
    found.pass_time(2)
    while NodePhase.SWITCHING not in [n.state for n in found.roll.nodes.values()]:
        found.step(lossy=True)
        found.roll = decide.resumed(found.roll, found.now)
    assert found.new() == set()
    found.run()
    assert found.roll.state is Phase.DONE
    assert [m.switches for m in found.members.values()] == [1, 1, 1, 1]


def test_pause_resume_and_abort() -> None:
    found = cluster(4, Plan(batch=Amount(1), health_s=3.0))
    found.run(until=lambda: len(found.new()) == 1)
    found.roll, _ = decide.pause(found.roll, "ann", found.now)
    with pytest.raises(Refused, match="it is paused"):
        decide.pause(found.roll, "ann", found.now)
    for _ in range(100):
        found.pass_time(1.0)
        found.step()
    assert len(found.new()) == 1
    assert found.roll.reason == "paused by ann"
    found.roll, actions = decide.resume(found.roll, "ann", found.now)
    found.obey(actions)
    found.run(until=lambda: len(found.new()) == 3)
    found.roll, actions = decide.abort(found.roll, "bob", found.now)
    found.obey(actions)
    assert found.roll.state is Phase.ABORTED
    assert found.roll.reason == "aborted by bob"
    assert not found.unended()
    assert len(found.new()) == 3, "what has switched stays"
    with pytest.raises(Refused, match="it is over"):
        decide.abort(found.roll, "bob", found.now)
    with pytest.raises(Refused, match="it is aborted"):
        decide.resume(found.roll, "bob", found.now)


@pytest.mark.parametrize(
    ("text", "of", "expected"), [("5", 100, 5), ("10%", 100, 10), ("10%", 5, 1), ("100%", 7, 7)]
)
def test_amounts(text: str, of: int, expected: int) -> None:
    assert parse_amount("--batch", text).of(of) == expected
    assert str(parse_amount("--batch", text)) == text


@pytest.mark.parametrize("text", ["0", "-1", "101%", "x", "", "5 %", "1.5", "0%", "\u0665"])
def test_amounts_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot use --batch"):
        parse_amount("--batch", text)


def test_the_description_counts_the_nodes() -> None:
    found = cluster(3, Plan(batch=Amount(10, percent=True), canary=1))
    found.run()
    told = describe(found.roll)
    assert (told["state"], told["counts"], told["plan"]["batch"]) == ("done", {"done": 3}, "10%")
