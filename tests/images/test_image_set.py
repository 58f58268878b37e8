"""The node's image set with everything real: squashfs, loop, overlay, crun; in a mount namespace of
its own."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from smallimages import build_plain_image

from imageapi.node.container.process import Process, alive
from imageapi.node.mount import mount_points
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from layercake.kraken.events import EventKind
from tests.support.images import (
    Node,
    assert_clean,
    eventually,
    mounts_under,
    open_handles,
    prepare,
    spec_of,
    used_loops,
)
from tests.support.namespace import run_as_agent

pytestmark = pytest.mark.root


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its init says why and ends at once."""
    script = "#!/bin/sh\necho 'cannot find the frobnicator'\nexit 3\n"
    return build_plain_image(
        tmp_path_factory.mktemp("images") / "broken.squashfs", "broken", script=script
    )


def says(node: Node, name: str, text: str) -> bool:
    return text in node.images.logs(name, 10)


def test_image_runs_and_leaves_nothing(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        before, loops = set(mount_points()), used_loops()
        assert node.images.adopt() == "IDLE"
        assert node.run(spec_of(one, "app")) == "ACTIVE"
        eventually(lambda: "one line 1" in node.images.logs("app", 10))
        assert used_loops() - loops, "the image should be on a loop device"
        assert node.stop() == "IDLE"
        assert node.images.runtime.exits.is_dir()
        assert_clean(node, run, before, loops)

    run_as_agent(tmp_path / "run", body)


def test_defect_8_image_names_with_digits_roll(tmp_path: Path, one: Path, two: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        for name in ("2", "web2", "app-2.0:2026.11", "0.1-rc.3"):
            assert node.run(spec_of(one, name)) == "ACTIVE"
            assert node.run(spec_of(two, name)) == "ACTIVE"
            kind, _, data = node.last("image.rolled")
            assert (kind, data["image"]) == ("image.rolled", name)
            eventually(partial(says, node, name, "two line"))
            node.stop()

    run_as_agent(tmp_path / "run", body)


def test_roll_prepares_before_it_stops(
    tmp_path: Path, one: Path, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        old = node.images.process_of("app")
        created: list[bool] = []
        create = node.images.runtime.create

        def creating(*arguments: Any) -> Process:
            created.append(alive(old))
            return create(*arguments)

        monkeypatch.setattr(node.images.runtime, "create", creating)
        node.images.set_wanted([spec_of(two, "app")])
        assert node.images.state() == "UPDATE"
        assert node.images.reconcile() == "ACTIVE"
        assert created == [True], "the new container must be made while the old one runs"
        assert not alive(old)
        gap = node.last("image.rolled")[2]["gap_ms"]
        assert 0 < gap < 1000
        assert len(node.images.instances()) == 1
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_same_image_under_two_names_shares_one_layer(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        loops = used_loops()
        assert node.run(spec_of(one, "a"), spec_of(one, "b")) == "ACTIVE"
        assert len(used_loops() - loops) == 1
        assert node.run(spec_of(one, "b")) == "ACTIVE"
        assert [i.spec.name for i in node.images.instances()] == ["b"]
        assert len(used_loops() - loops) == 1
        node.stop()
        assert used_loops() == loops

    run_as_agent(tmp_path / "run", body)


def test_crash_loop_ends_fatal_and_a_new_image_recovers_it(
    tmp_path: Path, broken: Path, one: Path
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(broken, "app"))
        for attempt in (1, 2):
            if node.images.state() == "ACTIVE":
                node.wait_for_end()
            assert node.images.state() == "ERROR", attempt
            assert node.images.table.failure_of("app").retry_at - node.clock() > 4 * attempt, (
                "back-off doubles"
            )
            node.skew += 30
            node.images.retry()
        if node.images.state() == "ACTIVE":
            node.wait_for_end()
        assert node.images.state() == "FATAL"
        _, text, data = node.last("image.fatal")
        assert "cannot find the frobnicator" in text and "exit status 3" in text
        assert data["attempts"] == 3
        assert node.images.table.failure_of("app").fatal
        node.images.set_wanted([spec_of(one, "app")])
        assert node.images.state() == "IDLE"
        assert node.images.reconcile() == "ACTIVE"
        node.stop()
        assert not mounts_under(run), mounts_under(run)

    run_as_agent(tmp_path / "run", body)


def test_an_image_that_runs_has_not_ended_whoever_says_so(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        (ident,) = node.images.watched().values()
        assert node.images.ended(ident) == "ACTIVE"
        assert list(node.images.watched().values()) == [ident], "its end is still waited for"
        assert "container.exited" not in node.kinds()
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_clear_takes_a_fatal_set_back(tmp_path: Path, broken: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(broken, "app"))
        for _ in range(3):
            if node.images.state() == "ACTIVE":
                node.wait_for_end()
            node.skew += 30
            if node.images.state() == "ERROR":
                node.images.retry()
        assert node.images.state() == "FATAL"
        node.images.clear()
        assert node.images.state() == "IDLE"
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_digest_mismatch_is_refused_and_told(tmp_path: Path, one: Path, two: Path) -> None:
    bad = ImageSpec(
        "app", "blake2b:" + "0" * 64, two.stat().st_size, f"file://{two}", ContainerSpec()
    )

    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        running = node.images.process_of("app")
        assert node.run(bad) == "ERROR"
        assert alive(running), "the old image runs on when the new one cannot be had"
        assert "expected blake2b:000" in node.last("image.digest-mismatch")[1]
        for _ in range(2):
            node.skew += 30
            node.images.retry()
        assert node.images.state() == "FATAL"
        assert list((run / "blobs").glob("0000*")) == []
        assert node.run(spec_of(one, "app")) == "ACTIVE"
        assert node.images.process_of("app") == running
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_killed_container_is_started_again(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        first = node.images.process_of("app")
        os.kill(first.pid, signal.SIGKILL)
        assert node.wait_for_end() == "ERROR"
        assert node.last("container.exited")[2]["status"] == 137
        node.skew += 30
        assert node.images.retry() == "ACTIVE"
        assert node.images.process_of("app").pid != first.pid
        node.stop()
        assert not mounts_under(run)

    run_as_agent(tmp_path / "run", body)


def test_a_new_agent_adopts_what_runs(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        process = node.images.process_of("app")
        later = Node(run)
        later.images.set_wanted([spec_of(one, "app")])
        assert later.images.adopt() == "ACTIVE"
        assert later.images.process_of("app") == process and alive(process)
        assert "image.adopted" in later.kinds()
        assert later.stop() == "IDLE"
        assert not alive(process)

    run_as_agent(tmp_path / "run", body)


def test_a_new_agent_learns_of_a_death_it_did_not_see(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        os.kill(node.images.process_of("app").pid, signal.SIGKILL)
        eventually(lambda: not alive(node.images.process_of("app")))
        later = Node(run)
        later.images.set_wanted([spec_of(one, "app")])
        assert later.images.adopt() == "ERROR"
        assert later.last("container.exited")[2]["status"] == 137
        later.stop()
        assert not mounts_under(run)

    run_as_agent(tmp_path / "run", body)


def test_a_half_prepared_image_is_removed_by_the_next_agent(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        loops = used_loops()
        prepare(run, spec_of(one, "app"))
        assert used_loops() != loops
        later = Node(run)
        later.images.set_wanted([])
        assert later.images.adopt() == "IDLE"
        assert_clean(later, run, set(mount_points()) - set(mounts_under(run)), loops)

    run_as_agent(tmp_path / "run", body)


def test_fifty_cycles_leak_nothing(tmp_path: Path, one: Path, two: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        before, loops, handles = set(mount_points()), used_loops(), open_handles()
        for number in range(50):
            assert node.run(spec_of((one, two)[number % 2], "app")) == "ACTIVE"
            if number % 3 == 0:
                assert node.stop() == "IDLE"
        node.images.set_wanted([])
        node.stop()
        assert_clean(node, run, before, loops)
        assert open_handles() == handles
        assert not [k for k in node.kinds() if k in ("image.remains", "image.lazy-unmount")]

    run_as_agent(tmp_path / "run", body)


def test_restart_policies(tmp_path: Path, broken: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(broken, "job", restart="never"))
        if node.images.instances()[0].phase.name == "RUNNING":
            node.wait_for_end()
        assert node.images.state() == "ACTIVE", (
            "a job that ended and is never to be restarted is what was wanted"
        )
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_stubborn_image_is_killed_after_its_time(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    image = build_plain_image(
        tmp_path_factory.mktemp("i") / "deaf.squashfs",
        "deaf",
        script="#!/bin/sh\ntrap '' TERM\necho up\nwhile :; do sleep 1; done\n",
    )

    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(image, "deaf", stop_timeout_s=0.3))
        eventually(lambda: "up" in node.images.logs("deaf", 5))
        started = time.monotonic()
        node.stop()
        assert time.monotonic() - started < patience(3)
        assert "image.killed" in node.kinds()

    run_as_agent(tmp_path / "run", body)


class Observing(Node):
    """Notes the state of the set at each event, as an agent that says HELLO at that moment."""

    def __init__(self, run: Path) -> None:
        self.seen: list[tuple[str, str]] = []
        super().__init__(run)

    def event(
        self, kind: EventKind | str, text: str, severity: str | None = None, **data: Any
    ) -> None:
        super().event(kind, text, severity, **data)
        self.seen.append((self.kinds()[-1], self.images.state()))


def test_a_set_that_stops_is_active_until_it_is_idle(tmp_path: Path, one: Path, two: Path) -> None:
    """In between it was UPDATE, which is not what `image-stop` leads to: each stop warned of a
    failed step."""

    def body(run: Path) -> None:
        node = Observing(run)
        assert node.run(spec_of(one, "a"), spec_of(two, "b")) == "ACTIVE"
        node.seen.clear()
        assert node.images.stop_all() == "IDLE"
        stopped = [state for kind, state in node.seen if kind == "image.stopped"]
        assert stopped == ["ACTIVE", "ACTIVE"]
        assert node.images.state() == "IDLE"

    run_as_agent(tmp_path / "run", body)


def test_log_is_bounded(tmp_path: Path, one: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(spec_of(one, "app"))
        log = node.images.runtime.log(node.images.instances()[0].id)
        with log.open("ab") as file:
            file.write(b"x" * 79 + b"\n" + b"filler line\n" * 400_000)
        node.images.trim_logs()
        assert log.stat().st_size < 1_100_000
        eventually(lambda: "one line" in node.images.logs("app", 3), 5)
        node.stop()

    run_as_agent(tmp_path / "run", body)
