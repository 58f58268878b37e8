"""In which order images start, and what follows from health checks: pure rules, and the checks
themselves against real servers."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imageapi.node.container.execute import ExecContext
from imageapi.node.container.process import Process
from imageapi.node.health.probes import begin
from imageapi.node.health.watch import Tracker, Watch
from imageapi.spec.health import HEALTHY, STARTING, UNHEALTHY, Health
from imageapi.spec.start_order import meant, ranks, start_order
from layercake.kraken.errors import InputError
from tests.support.images import eventually


def test_images_start_after_those_they_depend_on() -> None:
    sets = {"web": ("db", "cache"), "db:15.2": ("log",), "cache": (), "log": ()}
    assert start_order(sets) == ["cache", "log", "db:15.2", "web"]
    rank = ranks(sets)
    assert sorted(sets, key=rank.__getitem__) == ["cache", "log", "db:15.2", "web"]


def test_a_name_without_a_tag_means_any_tag() -> None:
    assert meant("db", ["db:1", "db:2", "db2", "dbx"]) == ["db:1", "db:2"]
    assert meant("db:1", ["db:1", "db:2"]) == ["db:1"]
    assert meant("db", ["db", "web"]) == ["db"]


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ({"web": ("db",)}, r"web depends on db, which is not in it \(it has: web\)"),
        ({"web": ("db:2",), "db:1": ()}, "db:2, which is not in it"),
        ({"a": ("a",)}, "a -> a"),
        ({"a": ("b",), "b": ("c",), "c": ("a",), "d": ("a",)}, "a -> b -> c -> a"),
        ({"x": ("a",), "a": ("b",), "b": ("a",)}, "a -> b -> a"),
    ],
)
def test_sets_that_could_never_start_are_refused(
    sets: dict[str, tuple[str, ...]], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        start_order(sets)
    assert set(ranks(sets)) == set(sets), "and can be stopped all the same"


CHECK = Health("tcp", port=1, interval_s=10, timeout_s=1, retries=3, start_s=30)


def test_failures_do_not_count_while_it_starts() -> None:
    tracker = Tracker(CHECK, 100.0)
    assert not any(tracker.result(False, "refused", 100.0 + t) for t in range(0, 30, 3))
    assert tracker.status == STARTING and tracker.due - 127.0 <= 1.0, "asked often"
    assert [tracker.result(False, "refused", t) for t in (130.0, 140.0, 150.0)] == [
        False,
        False,
        True,
    ]
    assert (tracker.status, tracker.text) == (UNHEALTHY, "refused")
    assert tracker.result(True, "", 160.0) and tracker.status == HEALTHY


def test_once_healthy_only_failures_in_a_row_count() -> None:
    tracker = Tracker(CHECK, 100.0)
    assert tracker.result(True, "", 101.0)
    assert tracker.due == 111.0
    for good in (False, False, True, False, False):
        assert not tracker.result(good, "x", 102.0)
    assert tracker.result(False, "x", 103.0) and tracker.status == UNHEALTHY


class Answer(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(Answer.status if self.path == "/up" else 404)
        self.end_headers()

    def log_message(self, *rest: object) -> None:
        """Quiet."""


@pytest.fixture
def web() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "health"]


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_one_thread_checks_all_kinds_and_leaves_nothing(web: int) -> None:
    Answer.status = 200
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    said: dict[str, list[tuple[str, str]]] = {}
    watch = Watch(
        begin,
        lambda name, status, text: said.setdefault(name, []).append((status, text)),
        time.monotonic,
    )
    before = handles()
    quick: dict[str, Any] = {"interval_s": 0.1, "timeout_s": 20.0, "retries": 2, "start_s": 0.0}
    brief = {**quick, "timeout_s": 0.3}  # for what never answers
    checks = {
        "tcp": Health("tcp", port=web, **quick),
        "http": Health("http", port=web, path="/up", **quick),
        "missing": Health("http", port=web, path="/gone", **quick),
        "refused": Health("tcp", port=unused_port(), **quick),
        "silent": Health("http", port=silent.getsockname()[1], **brief),
        "true": Health("exec", ("true",), **quick),
        "false": Health("exec", ("sh", "-c", "echo broken; seq 100000; exit 3"), **quick),
        "slow": Health("exec", ("sleep", "60"), **brief),
        "closed": Health("exec", ("sh", "-c", "exec >&- 2>&-; sleep 60"), **brief),
        "endless": Health("exec", ("yes", "no"), **{**quick, "timeout_s": 60.0}),
        "nothing": Health("exec", ("/no/such/program",), **quick),
    }
    for name, check in checks.items():
        watch.add(name, check, ExecContext(), time.monotonic())
    assert len(threads()) == 1
    eventually(lambda: said.keys() == checks.keys())
    assert {name for name, told in said.items() if told[0][0] == HEALTHY} == {"tcp", "http", "true"}
    texts = {name: told[0][1] for name, told in said.items()}
    assert (
        "failed 2 times: HTTP status 404" in texts["missing"]
        and f"http port {web} /gone" in texts["missing"]
    )
    assert "Connection refused" in texts["refused"] and "no answer in 0.3 s" in texts["silent"]
    assert (
        "exit status 3: broken" in texts["false"]
        and "no answer" in texts["slow"]
        and "No such file" in texts["nothing"]
        and "no answer" in texts["closed"]
        and "it says more than 1 MiB: no no no" in texts["endless"]
    )
    Answer.status = 500
    eventually(lambda: len(said["http"]) == 2)
    assert said["http"][1][0] == UNHEALTHY and "HTTP status 500" in said["http"][1][1]
    Answer.status = 200
    eventually(lambda: len(said["http"]) == 3)
    assert said["http"][2] == (HEALTHY, "")
    for name in checks:
        watch.remove(name)
    eventually(lambda: not threads() and handles() == before)
    silent.close()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert not [c for c in children if "sleep" in Path(f"/proc/{c}/comm").read_text()]
    watch.add("again", checks["true"], ExecContext(), time.monotonic())
    eventually(lambda: "again" in said)
    watch.remove("again")
    eventually(lambda: not threads())


def test_a_container_that_is_gone_is_not_entered() -> None:
    assert begin(Health("exec", ("true",)), ExecContext(Process(1, 1))) == (
        False,
        "the container does not run",
    )
