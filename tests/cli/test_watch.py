"""The judgement on nodes that are followed; pure, with the time given."""

from __future__ import annotations

from layercake.client.watch import Watch, converged, runs_wanted_images
from tests.cli.canned_api import node_view, working


def test_converged_needs_the_state_to_agree_with_the_goal() -> None:
    assert converged(node_view())
    assert not converged(working())
    stale = node_view(
        state={"power": "OFF"}
    )  # the head says converged by a goal that is just being replaced
    assert not converged(stale)


def test_rolled_needs_the_digest_not_only_the_name() -> None:
    assert runs_wanted_images(node_view())
    images = {
        "wanted": [{"name": "debian", "digest": "b"}],
        "running": [{"name": "debian", "digest": "a"}],
    }
    assert not runs_wanted_images(node_view(images=images))


def test_only_changes_are_reported_and_seconds_alone_are_none() -> None:
    watch = Watch(["n0", "n1"], converged)
    assert [s.name for s in watch.update([working("n0"), working("n1")], 0.0)] == ["n0", "n1"]
    later = {**working("n0"), "status_text": "boot-wait, 13 s"}
    assert watch.update([later, working("n1")], 1.0) == []
    assert [s.name for s in watch.update([node_view("n0"), working("n1")], 2.0)] == ["n0"]
    assert not watch.over


def test_the_time_is_when_it_was_first_there() -> None:
    watch = Watch(["n0"], converged)
    watch.update([working()], 1.0)
    watch.update([node_view()], 4.0)
    watch.update([node_view()], 9.0)
    assert watch.over and watch.ok
    assert watch.nodes["n0"].to_record() == {
        "name": "n0",
        "status": "converged",
        "status_text": "",
        "done": True,
        "seconds": 4.0,
    }


def test_a_node_that_falls_back_is_under_way_again() -> None:
    watch = Watch(["n0"], converged)
    watch.update([node_view()], 1.0)
    watch.update([working()], 2.0)
    assert not watch.over and not watch.ok


def test_quarantine_counts_only_after_it_has_lasted() -> None:
    watch = Watch(["n0"], converged)
    bad = node_view(status="quarantined", status_text="x")
    watch.update([bad], 0.0)
    assert not watch.over  # the change that was just applied may lift it
    watch.update([working()], 1.0)
    watch.update([bad], 2.0)
    watch.update([bad], 4.9)
    assert not watch.over
    watch.update([bad], 5.0)
    assert watch.over and not watch.ok
    assert [s.name for s in watch.failed()] == ["n0"]


def test_a_node_that_is_gone_has_failed() -> None:
    watch = Watch(["n0"], converged)
    watch.update([], 1.0)
    assert watch.over and not watch.ok
    assert watch.nodes["n0"].to_record()["seconds"] is None
