"""A real agent with a container, whose head ends and another one goes on: nothing on the node is
touched."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.wire import heads_epoch
from tests.minos.test_agent import Rig, images  # noqa: F401 (a fixture)
from tests.support.fake_head import UP, FakeHead

pytestmark = [pytest.mark.root, pytest.mark.waits]


class TwoHeads(Rig):
    """Two heads of a site; the first one acts in epoch 1 when the agent starts."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.next = FakeHead(directory / "pki", self.head.node, beside=self.head)
        self.next.silent = True
        self.head.take_over(self.head, 1, self.next)

    def stop(self) -> None:
        super().stop()
        self.next.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TwoHeads]:
    found = TwoHeads(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def test_the_next_head_goes_on_with_the_node_and_touches_nothing(
    rig: TwoHeads,
    images: dict[str, dict[str, Any]],  # noqa: F811
) -> None:
    first, second = rig.head, rig.next
    first.document |= {"revision": 3, "goal": UP, "images": [images["one"]]}
    rig.start()
    first.wait_for(image="ACTIVE")
    container, agent = rig.container(), rig.agent
    first.silent = True
    second.take_over(first, 2, first)
    second.wait_for(run="SYNC", image="ACTIVE")
    assert (rig.container(), rig.agent) == (container, agent)
    assert len(first.joins) == 1 and not second.joins
    second.wait(lambda: second.epochs and second.epochs[-1] == "2")

    before = len(first.hellos)
    first.silent = False  # it thinks that it acts still
    first.want([], {**UP, "power": "OFF"})
    first.wait(lambda: 2 in map(heads_epoch, first.challenged))
    assert second.hellos[-1].cfg_revision == 3 and len(first.hellos) == before
    challenged = len(first.challenged)
    os.kill(agent, signal.SIGKILL)  # the next agent knows which head acts, and the epoch
    heard = len(second.hellos)
    second.wait(lambda: rig.agent != agent and len(second.hellos) > heard)
    second.wait_for(run="SYNC", image="ACTIVE")
    assert rig.container() == container and len(first.hellos) == before
    assert len(first.challenged) <= challenged + 2, "the two do not go on answering each other"
    second.want([images["two"]])
    second.wait_for(image="ACTIVE")
    assert rig.container() not in (0, container), "what the head that acts wants is done"
