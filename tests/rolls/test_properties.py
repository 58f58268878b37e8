"""Whatever the nodes do, a roll keeps its promises: on random clusters that stage, break, go away,
boot, and are BUSY."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.features.rolls import decide
from layercake.features.rolls.facts import Amount, NodePhase, Phase, Plan
from tests.support.rollcluster import Cluster, Member

SPANS = st.one_of(
    st.just((0.0, 0.0)),
    st.tuples(st.integers(0, 200), st.integers(1, 300)).map(lambda p: (float(p[0]), float(sum(p)))),
)
MEMBERS = st.builds(
    Member,
    stage_s=st.sampled_from([0.5, 3.0, 50.0]),
    stage_failures=st.sampled_from([0, 0, 0, 1, 5]),
    switch_s=st.sampled_from([0.5, 4.0, 1000.0]),
    bad=st.sampled_from(["", "", "", "", "at once", "later"]),
    busy=SPANS,
    away=SPANS,
    boots_when_away=st.booleans(),
    healthy_s=st.sampled_from([0.0, 0.0, 10.0, 99_999.0]),
)
AMOUNTS = st.one_of(st.none(), st.builds(Amount, st.integers(1, 100), st.booleans()))
PLANS = st.builds(
    Plan,
    batch=AMOUNTS,
    max_unavailable=AMOUNTS,
    canary=st.integers(0, 2),
    health_s=st.sampled_from([0.0, 2.0, 30.0]),
    on_failure=st.sampled_from(["rollback", "pause"]),
    on_stage_failure=st.sampled_from(["skip", "skip", "fail"]),
)


@settings(max_examples=200)
@given(st.data())
def test_a_roll_keeps_its_promises(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    members = {f"n{i}": data.draw(MEMBERS) for i in range(count)}
    stages = {name: data.draw(st.integers(0, 2)) for name in members}
    found = Cluster(members, data.draw(PLANS), stages)
    kills = set(data.draw(st.lists(st.integers(0, 60), max_size=3)))
    limit = found.plan.max_unavailable
    rounds = 0
    failing = 0
    spared = set[str]()
    wanted = set[str]()
    while not found.roll.over and found.now < 40_000:
        failed_before = "roll.rolling-back" in found.notes
        found.step(lossy=rounds in kills)
        if rounds in kills:
            found.roll = decide.resumed(found.roll, found.now)
        if limit is not None:
            size = sum(n.stage == found.roll.stage for n in found.roll.nodes.values())
            assert sum(
                n.state is NodePhase.SWITCHING for n in found.roll.nodes.values()
            ) <= limit.of(size)
        if "roll.rolling-back" in found.notes and not failed_before:
            spared = {
                k
                for k, n in found.roll.nodes.items()
                if n.state is NodePhase.DONE and n.batch != found.roll.batch
            }
            failing = found.roll.batch
            wanted = found.new()
        if found.roll.state is Phase.PAUSED:
            assert found.roll.reason, "a roll that is paused says why"
            found.roll, actions = decide.resume(found.roll, "a person", found.now)
            found.obey(actions)
        found.pass_time(1.0 if found.now < 1600 else 30.0)
        rounds += 1
    assert found.roll.over, f"not over after 39,000 s: {found.stands()}"
    assert not found.switched_before_staged
    assert not found.unended()
    if found.roll.state is Phase.FAILED:
        assert found.roll.reason
    if "roll.rolling-back" in found.notes and not kills:
        assert spared <= found.new(), "batches that were through their gates stay"
        assert found.new() <= wanted, "nothing switches after a gate has failed"
        back = {k for k, n in found.roll.nodes.items() if n.batch == failing}
        assert not back & found.new(), "the whole batch is wanted back"
    if found.roll.state is Phase.DONE:
        assert all(
            n.state in (NodePhase.DONE, NodePhase.SKIPPED) for n in found.roll.nodes.values()
        )
