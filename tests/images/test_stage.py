"""Content made ready beside what runs: real squashfs and loop devices, in a mount namespace of its
own."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from smallimages import build_plain_image

from imageapi.node.attach.fetch import Body
from imageapi.node.interrupt import never
from imageapi.node.mount import is_mounted, mount_points
from imageapi.spec.image import ImageSpec
from layercake.kraken.events import EventKind, Severity
from tests.support.images import Node, assert_clean, eventually, spec_of, used_loops
from tests.support.namespace import run_as_agent

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("images")
    return {
        name: build_plain_image(directory / f"{name}.squashfs", name)
        for name in ("one", "two", "three")
    }


class StagingNode(Node):
    """A node that stages."""

    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self.layers = run / "layers"

    def staged(self) -> list[str]:
        return [data["name"] for kind, _, data in self.events if kind == "image.staged"]

    def ready(self, spec: ImageSpec) -> bool:
        return is_mounted(self.layers / spec.hex)


def test_staged_content_is_ready_and_what_runs_is_not_touched(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    def body(run: Path) -> None:
        node = StagingNode(run)
        before, loops = set(mount_points()), used_loops()
        one, two = spec_of(files["one"], "app"), spec_of(files["two"], "app")
        assert node.run(one) == "ACTIVE"
        process = node.images.process_of("app")
        node.images.stage([two])
        eventually(lambda: node.staged() == ["app"])
        assert node.ready(two)
        assert node.images.process_of("app") == process
        assert node.images.state() == "ACTIVE"
        node.images.set_wanted([two])
        node.images.stage([one])
        assert node.images.reconcile(never) == "ACTIVE"
        assert node.last("image.prepared")[2]["attach_s"] < patience(0.05), (
            "there was nothing left to fetch"
        )
        eventually(lambda: node.staged() == ["app", "app"])
        assert node.ready(one), "the way back stays short"
        node.images.stage([])
        eventually(lambda: not node.ready(one))
        node.stop()
        node.images.set_wanted([])
        node.images.stage([two])
        node.images.stage([])
        eventually(lambda: not list(node.layers.iterdir()))
        assert_clean(node, run, before, loops)

    run_as_agent(tmp_path / "run", body)


def test_nobody_waits_to_hear_that_what_runs_is_ready(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    def body(run: Path) -> None:
        node, urgent = StagingNode(run), dict[str, bool]()
        tell = node.images.staging.event

        def event(
            kind: EventKind, text: str, severity: Severity | None = None, **data: Any
        ) -> None:
            urgent[data["digest"]] = kind.urgent
            tell(kind, text, severity, **data)

        node.images.staging.event = event
        one, two = spec_of(files["one"], "app"), spec_of(files["two"], "app")
        assert node.run(one) == "ACTIVE"
        node.images.stage([one, two])
        eventually(lambda: node.staged() == ["app", "app"])
        assert urgent == {one.digest: False, two.digest: True}
        node.images.stage([])
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_what_cannot_be_staged_is_told_and_tried_again(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    def body(run: Path) -> None:
        node = StagingNode(run)
        one, two = spec_of(files["one"], "app"), spec_of(files["two"], "new")
        assert node.run(one) == "ACTIVE"
        altered = ImageSpec(two.name, "blake2b:" + "0" * 64, two.size, two.url, two.container)
        node.images.stage([altered])
        eventually(lambda: "image.stage-failed" in node.kinds())
        assert node.last("image.stage-failed")[2]["digest"] == altered.digest
        assert node.images.state() == "ACTIVE", "it is no failure of the image set"
        failures = node.kinds().count("image.stage-failed")
        node.images.stage([altered, two])
        eventually(lambda: node.kinds().count("image.stage-failed") == failures + 1)
        eventually(lambda: node.staged() == ["new"])
        node.images.stage([two], True)
        eventually(lambda: node.staged() == ["new", "new"])
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_a_slow_fetch_holds_up_nothing_and_is_not_done_twice(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    def body(run: Path) -> None:
        node = StagingNode(run)
        one, two, three = (spec_of(files[name], "app") for name in ("one", "two", "three"))
        gate, opened = threading.Event(), []
        really = node.open_url

        def slow(url: str, offset: int) -> Body:
            opened.append(url)
            if url == two.url:
                gate.wait(20)
            return really(url, offset)

        node.open_url = slow
        assert node.run(one) == "ACTIVE"
        node.images.stage([two])
        eventually(lambda: two.url in opened)
        assert node.run(three) == "ACTIVE", "another image starts while this one is fetched"
        node.images.set_wanted([two])
        threading.Timer(0.3, gate.set).start()
        assert node.images.reconcile() == "ACTIVE"
        assert opened.count(two.url) == 1
        eventually(lambda: node.staged() == ["app"])
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_what_is_staged_slowly_is_fetched_at_once_when_it_is_wanted(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    """From where it has come to; at a million bits a second it would take minutes."""

    def body(run: Path) -> None:
        node = StagingNode(run)
        one = spec_of(files["one"], "app")
        slow = dataclasses.replace(one, mbit_s=1)
        begun, opened, really = threading.Event(), [], node.open_url

        def open_url(url: str, offset: int) -> Body:
            opened.append(offset)
            begun.set()
            return really(url, offset)

        node.open_url = open_url
        node.images.stage([slow])
        assert begun.wait(20)
        assert node.run(one) == "ACTIVE"
        assert len(opened) == 2, "the slow transfer was not waited for"
        eventually(lambda: node.staged() == ["app"])
        node.stop()

    run_as_agent(tmp_path / "run", body)
