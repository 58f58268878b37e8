"""Features: their order, what they ask of the kernel, and that each hook is called."""

from __future__ import annotations

import re

import pytest

from layercake.head.features import FEATURES
from layercake.kernel.feature import Feature, Running, in_order
from layercake.kernel.kernel import Kernel
from layercake.kraken.errors import DeclarationError
from tests.support.world import World


def feature(name: str, *needs: str) -> Feature:
    return Feature(name, lambda kernel: Running((object(),)), needs=needs)


def test_each_feature_comes_after_those_that_it_needs() -> None:
    given = [feature("c", "a", "b"), feature("b", "a"), feature("a"), feature("d")]
    assert [each.name for each in in_order(given)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((feature("a", "b"),), "feature a needs b"),
        ((feature("a", "b"), feature("b", "a")), "feature a needs b"),
        ((feature("a"), feature("a")), "two features a"),
    ],
)
def test_what_cannot_be_ordered_says_why(given: tuple[Feature, ...], why: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(why)):
        in_order(given)


def test_the_features_of_the_head_are_named_once() -> None:
    names = [each.name for each in FEATURES]
    assert len(names) == len(set(names)) > 3
    assert {each.name for each in in_order(FEATURES)} == set(names)


class Recorder:
    """A feature that notes which of its hooks were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, kernel: Kernel) -> Running:
        async def stop() -> None:
            self.calls.append("stop")

        return Running(
            (self,),
            load=lambda: self.calls.append("load"),
            tick=lambda: self.calls.append("tick"),
            stop=stop,
            forget=lambda record: self.calls.append(f"forget {record.name}"),
            removed=lambda record: self.calls.append(f"removed {record.name}"),
            document=lambda record: {"recorder": record.name},
            guard_secrets=lambda record, what: self.calls.append(f"{record.name}: {what}"),
        )


async def test_each_hook_of_a_feature_is_called(world: World) -> None:
    recorder = Recorder()
    kernel = world.head.kernel
    kernel.start([Feature("recorder", recorder.start)])
    record = world.node("n0")
    running = kernel.running
    running.load()
    running.tick()
    running.decisions.guard_secrets(record, "a key")
    assert running.document(record)["recorder"] == "n0"
    assert kernel.part(Recorder) is recorder
    world.head.membership.forget(record)
    await running.stop()
    assert recorder.calls == ["load", "tick", "n0: a key", "forget n0", "removed n0", "stop"]


async def test_a_part_that_nobody_provides_is_named(world: World) -> None:
    with pytest.raises(DeclarationError, match="nothing provides Recorder"):
        world.head.kernel.part(Recorder)
