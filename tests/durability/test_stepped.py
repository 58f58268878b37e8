"""The clock of a running head steps, by an hour or by years, in both directions: a real head with
its modules, and real agents."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import HostSite
from smallimages import build_plain_image

from tests.support.steppedclock import SteppedClock

pytestmark = [pytest.mark.root, pytest.mark.waits]
HOUR, YEARS = 3600, 20 * 365 * 86400
NEAR_S = 60.0


class Stepping(HostSite):
    """A site of three nodes whose head has a clock of its own."""

    def __init__(self, directory: Path, images: dict[str, Path]) -> None:
        super().__init__(directory / "site", 3, images)
        self.clock = SteppedClock(directory / "clock")
        self.environment = self.clock.environment
        self.started: list[int] = []

    def start_head(self) -> None:
        super().start_head()
        assert self.process is not None
        self.started.append(self.process.pid)

    def down(self) -> None:
        super().down()
        for process in self.started:
            self.clock.forget(process)

    def events(self, after: int) -> list[dict[str, Any]]:
        """What has happened after an event, oldest first."""
        return [e for e in self.api("GET", "/v1/events?limit=1000")["events"] if e["id"] > after]

    def newest(self) -> int:
        return max(int(e["id"]) for e in self.events(-1))

    def starts(self, after: int) -> list[str]:
        """The containers that were started: agents gather events, so these come a little late."""
        return [
            f"{e['node']} {e['data']['image']}"
            for e in self.events(after)
            if e["kind"] == "image.started"
        ]

    def now(self) -> float:
        """The time that the head tells: that of an event which it makes."""
        mark = self.newest()
        self.api("POST", "/v1/guard/freeze", {"range": "h2", "reason": "what time is it?"})
        self.api("POST", "/v1/guard/thaw", {"range": "h2"})
        return float(self.events(mark)[-1]["at"])

    def steps(self, seconds: float) -> None:
        """The head's clock steps; returns when it is seen to have."""
        self.clock.step(seconds)
        self.wait(
            "the clock has stepped", lambda: abs(self.now() - time.time() - seconds) < NEAR_S, 120
        )

    def facts(self) -> dict[str, Any]:
        """What must be as it was: the modules' processes; of each node its boot and its agent."""
        services = {s["name"]: s["pid"] for s in self.api("GET", "/v1/status")["services"]}
        boots = {name: node["boot_id"] for name, node in self.states().items()}
        return {**services, **{n.name: (boots[n.name], n.agent) for n in self.nodes}}

    def all_well(self) -> bool:
        """Whether all nodes are what is wanted of them, and speak."""
        return all(
            n["status"] == "converged" and n["last_seen_s"] < 3 for n in self.states().values()
        )


@pytest.fixture(scope="module")
def site() -> Iterator[Stepping]:
    with tempfile.TemporaryDirectory(prefix="layercake-step-") as scratch:
        directory = Path(scratch)
        images = {
            name: build_plain_image(directory / f"{name}.squashfs", name) for name in ("one", "two")
        }
        found = Stepping(directory, images)
        try:
            found.up()
            found.wait("all starts are told", lambda: len(found.starts(-1)) == 3, 120)
            yield found
        finally:
            found.down()


@pytest.fixture(autouse=True)
def _as_it_was(site: Stepping) -> Iterator[None]:
    """Each test begins in the right time, with all nodes running the image `one`."""
    yield
    site.steps(0)
    site.api("POST", "/v1/images/roll", {"range": "h[0-2]", "image": "one"})
    site.wait("all run one", lambda: set(site.running().values()) == {"one"}, 120)
    site.wait(
        "all starts are told",
        lambda: all(
            site.history(n.name, "image.started")[-1]["data"]["image"] == "one"
            for n in site.nodes[:2]
        ),
        120,
    )  # h2 is never rolled


def maintenances(site: Stepping) -> list[dict[str, Any]]:
    return [
        m for m in site.api("GET", "/v1/maintenance?range=h2")["maintenances"] if m["ended"] is None
    ]


@pytest.mark.parametrize("step", [-YEARS, -HOUR, HOUR, YEARS])
def test_the_clock_of_a_running_head_steps(site: Stepping, step: int) -> None:
    before, mark = site.facts(), site.newest()
    site.api(
        "POST", "/v1/maintenance/begin", {"range": "h2", "reason": "a DIMM", "seconds": 1800.0}
    )
    number = site.roll("h[0-1]", "two", batch="1", health_timeout_s=3.0)
    site.wait("the first has switched", lambda: site.running()["h0"] == "two", 120)
    assert site.show(number)["state"] == "rolling"
    site.steps(step)
    told = site.until_over(number)
    assert (told["state"], told["counts"]) == ("done", {"done": 2})
    assert abs(told["ended"] - time.time() - step) < NEAR_S
    if step > 0:
        site.wait("what was until then is over", lambda: not maintenances(site), 120)
    else:
        assert len(maintenances(site)) == 1, "the time that it was to last until has not come"
        site.api("POST", "/v1/maintenance/end", {"range": "h2"})
    site.api("POST", "/v1/maintenance/begin", {"range": "h2", "reason": "a DIMM", "seconds": 2.0})
    site.wait("a maintenance ends by itself", lambda: not maintenances(site), 120)

    site.api("POST", "/v1/images/roll", {"range": "h[0-1]", "image": "one"})
    site.wait("DESIRED is heard", lambda: set(site.running().values()) == {"one"}, 120)
    site.wait("all is well", site.all_well, 120)
    site.wait("four starts are told", lambda: len(site.starts(mark)) >= 4, 120)
    events = site.events(mark)
    ids = [e["id"] for e in events]
    assert ids == sorted(ids) and abs(events[-1]["at"] - time.time() - step) < NEAR_S, (
        "history is in its order, and by the clock"
    )
    assert not [
        e
        for e in events
        if e["kind"] in ("sync.lost", "mutation.started", "outage.called", "node.joined")
    ]
    assert sorted(site.starts(mark)) == ["h0 one", "h0 two", "h1 one", "h1 two"], (
        "there and back, and nobody else"
    )
    assert site.facts() == before


@pytest.mark.parametrize("step", [-YEARS, YEARS])
def test_a_head_that_is_started_in_another_time_touches_nobody_and_its_clock_is_set(
    site: Stepping, step: int
) -> None:
    """As one whose own battery is dead: it finds the right time when it has a network."""
    mark = site.newest()
    before = {name: fact for name, fact in site.facts().items() if name in site.states()}
    containers = {n.name: n.containers() for n in site.nodes}
    site.written()
    site.kill_head()
    site.clock.step(step)
    site.start_head()
    site.wait("all are back", site.all_well, 120)
    site.steps(0)
    site.wait("all is well", site.all_well, 120)
    assert {name: fact for name, fact in site.facts().items() if name in before} == before
    assert {n.name: n.containers() for n in site.nodes} == containers
    assert not [
        e
        for e in site.events(mark)
        if e["kind"] in ("sync.lost", "mutation.started", "node.joined", "image.started")
    ]
