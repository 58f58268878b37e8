"""Several containers on one node: ordered, checked, each with its own state and failures; with a
real crun."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.node.container.process import Process, alive
from imageapi.node.imageset.plan import Phase
from imageapi.node.interrupt import Interrupted
from imageapi.spec.container import DEFAULT_NAMESPACES, ContainerSpec
from imageapi.spec.health import Health
from imageapi.spec.image import ImageSpec
from layercake.kraken.errors import InputError, OperationFailed
from tests.support.images import Node, eventually, mounts_under, spec_of
from tests.support.namespace import run_as_agent

pytestmark = pytest.mark.root

SERVER = """#!/bin/sh
# A web server that is well while /tmp/well is there; its first answer comes after $DELAY seconds.
trap 'echo "$NAME ends"; exit 0' TERM
echo "$NAME starts"
busybox ip link set lo up
[ -n "$DELAY" ] && sleep "$DELAY"
[ -z "$SICK" ] && echo ok > /tmp/well
busybox httpd -p 80 -h /tmp
while :; do sleep 1 & wait $!; done
"""
OWN = (*DEFAULT_NAMESPACES, "network")
QUICK: dict[str, Any] = {"interval_s": 0.2, "timeout_s": 2.0, "retries": 2, "start_s": 3.0}
WELL = Health("http", port=80, path="/well", **QUICK)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(
        tmp_path_factory.mktemp("i") / "server.squashfs", "server", script=SERVER
    )


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(
        tmp_path_factory.mktemp("i") / "other.squashfs", "other", script=SERVER + "# other\n"
    )


def make(
    path: Path,
    name: str,
    *,
    health: Health | None = WELL,
    depends: tuple[str, ...] = (),
    **env: str,
) -> ImageSpec:
    variables = tuple(sorted({"NAME": name, **env}.items()))
    return spec_of(
        path,
        name,
        health=health,
        depends=depends,
        namespaces=OWN,
        env=variables,
        capabilities=("NET_ADMIN",),
    )


def order(node: Node, kind: str) -> list[str]:
    return [data["image"] for k, _, data in node.events if k == kind]


def shown(node: Node, name: str) -> dict[str, Any]:
    return next(v for v in node.images.views() if v["name"] == name)


def inside(node: Node, name: str) -> Path:
    return Path(f"/proc/{node.images.process_of(name).pid}/root")


def test_a_set_starts_in_order_and_stops_in_reverse(tmp_path: Path, server: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        web, db, log = (
            make(server, "web", depends=("db",)),
            make(server, "db:15.2", depends=("log",), DELAY="0.5"),
            make(server, "log", health=None),
        )
        assert node.run(web, db, log) == "ACTIVE", node.events
        assert order(node, "image.started") == ["log", "db:15.2", "web"]
        kinds = [(k, d.get("image")) for k, _, d in node.events]
        assert kinds.index(("image.healthy", "db:15.2")) < kinds.index(("image.started", "web")), (
            "up means healthy"
        )
        assert [v["state"] + "," + v["health"] for v in node.images.views()] == [
            "running,healthy",
            "running,healthy",
            "running,",
        ]
        assert node.stop() == "IDLE"
        assert order(node, "image.stopped") == ["web", "db:15.2", "log"]
        assert not mounts_under(run)
        assert not [
            t for t in threading.enumerate() if t.name == "health" and t.is_alive() and not _ends(t)
        ]

    run_as_agent(tmp_path / "run", body)


def _ends(thread: threading.Thread) -> bool:
    thread.join(2)
    return not thread.is_alive()


def test_a_set_that_could_never_start_is_refused_and_the_old_one_stays(
    tmp_path: Path, server: Path
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(make(server, "web"))
        for bad in (
            (make(server, "web", depends=("db",)),),
            (make(server, "a", depends=("b",)), make(server, "b", depends=("a",))),
        ):
            with pytest.raises(InputError, match="depend"):
                node.images.set_wanted(bad)
        assert [s.name for s in node.images.table.wanted] == [
            "web"
        ] and node.images.state() == "ACTIVE"
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_a_roll_to_an_image_that_never_gets_well_ends_readable(
    tmp_path: Path, server: Path, other: Path
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        assert node.run(make(server, "web")) == "ACTIVE"
        sick = make(
            other,
            "web",
            SICK="1",
            health=Health("http", port=80, path="/well", interval_s=0.1, retries=2, start_s=0.3),
        )
        seen: list[str] = []
        node.changed = lambda: seen.append(node.images.state())
        assert node.run(sick) == "ERROR"
        assert "ACTIVE" not in seen, "a set is not ACTIVE before its health checks say so"
        assert "HTTP status 404" in node.last("image.unhealthy")[1]
        view = shown(node, "web")
        assert (view["state"], view["health"], view["last_error"], view["retries"]) == (
            "running",
            "unhealthy",
            "UNHEALTHY",
            1,
        )
        assert "http port 80 /well" in view["error"] and view["retry_in_s"] > 0
        for _ in range(2):
            node.skew += 30
            node.images.retry()
        assert node.images.state() == "FATAL"
        view = shown(node, "web")
        assert view["last_error"] == "MAX_DEATHS" and "HTTP status 404" in view["error"]
        assert "HTTP status 404" in node.last("image.fatal")[1]
        assert alive(node.images.process_of("web")), "it is left for a person to look at"
        assert node.run(make(server, "web")) == "ACTIVE"
        assert shown(node, "web")["last_error"] == "NOERROR"
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_one_that_falls_ill_is_restarted_and_the_others_are_left_alone(
    tmp_path: Path, server: Path
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        assert node.run(make(server, "web"), make(server, "db")) == "ACTIVE"
        web, db = node.images.process_of("web"), node.images.process_of("db")
        changes: list[str] = []
        node.changed = lambda: changes.append(node.images.state())
        (inside(node, "web") / "tmp/well").unlink()
        eventually(lambda: changes[-1:] == ["ERROR"])  # the agent is told at once
        assert node.images.state() == "ERROR"
        assert shown(node, "db")["last_error"] == "NOERROR"
        node.skew += 30
        assert node.images.retry() == "ACTIVE"
        assert node.images.process_of("db") == db and node.images.process_of("web") != web
        assert not alive(web)
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_one_that_gets_well_by_itself_is_not_restarted(tmp_path: Path, server: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(make(server, "web"))
        web = node.images.process_of("web")
        (inside(node, "web") / "tmp/well").unlink()
        eventually(lambda: node.images.state() == "ERROR")
        (inside(node, "web") / "tmp/well").touch()
        eventually(lambda: node.images.state() == "ACTIVE")
        assert node.images.retry() == "ACTIVE" and node.images.process_of("web") == web
        assert shown(node, "web")["retries"] == 1, "remembered until it has run steadily"
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_a_busy_node_is_not_robbed_of_a_container_that_runs(tmp_path: Path, server: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(make(server, "web"))
        web = node.images.process_of("web")
        (run / "busy").touch()
        (inside(node, "web") / "tmp/well").unlink()
        eventually(lambda: node.images.state() == "ERROR")
        node.skew += 30
        end = time.monotonic() + 0.5
        with pytest.raises(Interrupted):
            node.images.retry(lambda: time.monotonic() > end)
        assert alive(web)
        (run / "busy").unlink()
        assert node.images.retry() == "ACTIVE" and not alive(web)
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_what_depends_on_a_sick_image_waits_for_it(tmp_path: Path, server: Path) -> None:
    sick = Health("http", port=80, path="/well", interval_s=0.1, retries=2, start_s=0.2)

    def body(run: Path) -> None:
        node = Node(run)
        assert (
            node.run(
                make(server, "web", depends=("db",)), make(server, "db", health=sick, SICK="1")
            )
            == "ERROR"
        )
        assert (
            "cannot start image web: db, which it depends on, is not up"
            in node.last("image.waiting")[1]
        )
        assert shown(node, "web")["state"] == "waiting" and shown(node, "web")["retries"] == 0
        assert [i.spec.name for i in node.images.instances()] == ["db"], (
            "what was prepared for web is gone"
        )
        (inside(node, "db") / "tmp/well").touch()
        eventually(lambda: node.images.state() == "UPDATE")
        assert node.images.reconcile() == "ACTIVE"
        assert order(node, "image.started") == ["db", "web"]
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_one_crashing_container_does_not_disturb_the_rest(tmp_path: Path, server: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(make(server, "web", health=None, depends=("db",)), make(server, "db", health=None))
        web = node.images.process_of("web")
        for attempt in range(3):
            os.kill(node.images.process_of("db").pid, signal.SIGKILL)
            node.wait_for_end()
            if attempt < 2:
                node.skew += 30
                assert node.images.retry() == "ACTIVE"
        assert (
            node.images.state() == "FATAL" and node.images.process_of("web") == web and alive(web)
        )
        assert (shown(node, "db")["state"], shown(node, "db")["last_error"]) == (
            "dead",
            "MAX_DEATHS",
        )
        assert (shown(node, "web")["state"], shown(node, "web")["last_error"]) == (
            "running",
            "NOERROR",
        )
        told = node.last("image.containers")[2]["containers"]
        assert [(c["name"], c["state"]) for c in told] == [("web", "running"), ("db", "dead")]
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_exec_checks_run_inside_and_every_cause_has_its_name(tmp_path: Path, server: Path) -> None:
    check = Health(
        "exec", ("/bin/sh", "-c", '[ "$NAME" = web ] && [ -x /init ] && cat /tmp/well'), **QUICK
    )

    def body(run: Path) -> None:
        node = Node(run)
        assert node.run(make(server, "web", health=check)) == "ACTIVE", node.events
        missing = ImageSpec(
            "gone",
            "blake2b:" + "1" * 64,
            10,
            "file:///no/such/file",
            spec_of(server, "x").container,
        )
        unmade = spec_of(server, "unmade", devices=("/dev/no-such",))
        bad = spec_of(server, "bad", command=("/no/such/program",))
        wanted = (make(server, "web", health=check), missing, unmade, bad)
        causes = {}
        for spec in wanted[1:]:
            assert node.run(wanted[0], spec) == "ERROR"
            causes[spec.name] = shown(node, spec.name)["last_error"]
        assert causes == {"gone": "ATTACH", "unmade": "INIT_FAIL", "bad": "INIT_FAIL"}
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_health_survives_an_agent(tmp_path: Path, server: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        spec = make(server, "web")
        node.run(spec)
        later = Node(run)
        later.images.set_wanted([spec])
        assert later.images.adopt() == "ACTIVE", "what was healthy is not asked to prove it first"
        (inside(later, "web") / "tmp/well").unlink()
        eventually(lambda: later.images.state() == "ERROR")
        again = Node(run)
        again.images.set_wanted([spec])
        assert again.images.adopt() == "ERROR"
        assert again.images.instances()[0].phase is Phase.UNHEALTHY
        (inside(again, "web") / "tmp/well").touch()
        eventually(lambda: again.images.state() == "ACTIVE")
        again.stop()

    run_as_agent(tmp_path / "run", body)


def test_an_old_image_that_cannot_be_stopped_is_tried_again(
    tmp_path: Path, server: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        node.run(make(server, "old"))
        stop, failing = node.images.runtime.stop, [True]

        def stopping(process: Process, spec: ContainerSpec) -> bool:
            if failing:
                failing.clear()
                raise OperationFailed("cannot stop process 7: it hangs")
            return stop(process, spec)

        monkeypatch.setattr(node.images.runtime, "stop", stopping)
        assert node.run(make(other, "new")) == "ERROR"
        assert "it hangs" in node.last("image.error")[1]
        node.skew += 30
        assert node.images.retry() == "ACTIVE"
        assert [i.spec.name for i in node.images.instances()] == [
            "new"
        ] and not node.images.table.failures
        node.stop()
        assert not mounts_under(run)

    run_as_agent(tmp_path / "run", body)


def test_a_changed_mind_ends_the_wait_for_health(tmp_path: Path, server: Path, other: Path) -> None:
    never_well = Health("http", port=80, path="/well", interval_s=0.2, retries=2, start_s=60)

    def body(run: Path) -> None:
        node = Node(run)
        node.images.set_wanted([make(server, "web", health=never_well, SICK="1")])
        stop = threading.Event()
        failed: list[BaseException] = []

        def reconcile() -> None:
            try:
                node.images.reconcile(stop.is_set)
            except Interrupted as error:
                failed.append(error)

        worker = threading.Thread(target=reconcile)
        worker.start()
        eventually(lambda: "image.started" in node.kinds())
        assert node.images.state() == "IDLE", "as before, while it is undecided"
        node.images.set_wanted([make(other, "web")])
        stop.set()
        worker.join(5)
        assert failed and node.images.state() == "UPDATE"
        assert node.images.reconcile() == "ACTIVE"
        node.stop()

    run_as_agent(tmp_path / "run", body)
