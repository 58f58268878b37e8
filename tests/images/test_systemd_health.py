"""Images with systemd are asked whether their systemd is well: the answer's meaning, what follows
from it, and a real systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patience import patience
from sampleimages import systemd_image

from imageapi.node.container import execute
from imageapi.node.health.systemd import verdict
from imageapi.node.health.watch import Tracker
from imageapi.spec.container import ContainerSpec, is_checked, parse_container
from imageapi.spec.health import (
    DEGRADED,
    HEALTHY,
    STARTING,
    SYSTEM_CHECK,
    UNHEALTHY,
    Health,
    parse_health,
)
from layercake.kraken.errors import InputError
from tests.support.images import Node, eventually, spec_of
from tests.support.namespace import run_as_agent

STARTING_ANSWER = """starting
== failed
odd.service loaded failed failed Odd
== jobs
12 multi-user.target start waiting
40 slow.service start running
"""
DEGRADED_ANSWER = """degraded
== failed
a.service loaded failed failed A
b.mount loaded failed failed B
== jobs
No jobs running.
"""


@pytest.mark.parametrize(
    ("answer", "allowed", "good", "text"),
    [
        ("running\n", (), True, ""),
        (DEGRADED_ANSWER, (), False, "failed units: a.service, b.mount"),
        (DEGRADED_ANSWER, ("a.service",), False, "failed units: b.mount"),
        (DEGRADED_ANSWER, ("a.service", "b.mount"), True, ""),
        (
            STARTING_ANSWER,
            ("odd.service",),
            False,
            "systemd has not finished starting: waiting for slow.service",
        ),
        (STARTING_ANSWER, (), False, "waiting for slow.service; failed units: odd.service"),
        ("initializing\n== failed\n== jobs\n", (), False, "systemd has not finished starting"),
        (
            "Failed to connect to bus: No such file or directory\n",
            (),
            False,
            "systemd has not finished starting",
        ),
        ("", (), False, "systemd has not finished starting"),
        ("stopping\n== failed\n== jobs\n", (), False, "systemd is stopping"),
        (
            "/bin/sh: 2: systemctl: not found\n== failed\n",
            (),
            False,
            "systemd does not answer: /bin/sh: 2: systemctl: not found",
        ),
    ],
)
def test_what_systemd_says_is_well_or_not(
    answer: str, allowed: tuple[str, ...], good: bool, text: str
) -> None:
    found = verdict(answer, allowed)
    assert found[0] is good and (text in found[1] if text else found[1] == "")


def test_many_failed_units_are_counted() -> None:
    answer = (
        "degraded\n== failed\n"
        + "".join(f"u{n}.service loaded failed failed x\n" for n in range(8))
        + "== jobs\n"
    )
    assert verdict(answer, ())[1].endswith("u4.service and 3 more")


@pytest.mark.parametrize(
    ("description", "check"),
    [
        ({"systemd": True}, SYSTEM_CHECK),
        ({"systemd": False}, None),
        ({"systemd": True, "health": "none"}, None),
        ({"systemd": True, "health": {"kind": "none"}}, None),
        ({"systemd": True, "health": {"kind": "tcp", "port": 1}}, Health("tcp", port=1)),
        (
            {"systemd": True, "health": {"kind": "systemd", "allow_failed": ["b", "a.mount"]}},
            Health("systemd", start_s=120.0, allow_failed=("a.mount", "b.service")),
        ),
        (
            {"systemd": True, "health": {"kind": "systemd", "unit": "web.service"}},
            Health("systemd", unit="web.service"),
        ),
    ],
)
def test_an_image_with_systemd_is_asked_unless_it_says_otherwise(
    description: dict[str, Any], check: Health | None
) -> None:
    spec = parse_container(description)
    assert spec.check == check
    assert parse_container(spec.to_wire()) == spec
    assert is_checked(spec.to_wire()) is (check is not None)


@pytest.mark.parametrize(
    "health",
    [
        {"kind": "systemd", "unit": "a", "allow_failed": ["b"]},
        {"kind": "tcp", "port": 1, "allow_failed": ["b"]},
        {"kind": "systemd", "allow_failed": "b"},
        {"kind": "systemd", "allow_failed": ["-H evil"]},
        "any",
    ],
)
def test_what_may_fail_is_said_of_systemd_only(health: object) -> None:
    with pytest.raises(InputError, match="cannot use image health"):
        parse_health(health)


def test_systemd_that_was_well_is_degraded_and_not_restarted() -> None:
    tracker = Tracker(SYSTEM_CHECK, 0.0)
    assert (
        not tracker.result(False, "systemd has not finished starting", 119.0)
        and tracker.status == STARTING
    )
    assert [tracker.result(False, "x", t) for t in (120.0, 130.0, 140.0)] == [False, False, True]
    assert tracker.status == UNHEALTHY
    assert tracker.result(True, "", 150.0) and tracker.status == HEALTHY
    assert [tracker.result(False, "failed units: a", t) for t in (160.0, 170.0, 180.0)] == [
        False,
        False,
        True,
    ]
    assert tracker.status == DEGRADED
    assert not tracker.result(False, "failed units: a", 190.0)
    assert tracker.result(True, "", 200.0) and tracker.status == HEALTHY


RUN = (
    "/sbin/init",
    "systemd.show_status=0",
    "systemd.run_success_action=none",
    "systemd.run_failure_action=none",
    "systemd.mask=systemd-ask-password-console.path",
    "systemd.mask=systemd-ask-password-wall.path",
)
"""systemd that runs one command as the unit kernel-command-line.service
(systemd-run-generator(8)), without the units that fail where other tests have taken all of this
machine's instances of inotify."""
NETWORK = ("pid", "ipc", "uts", "mount", "cgroup", "network")


@pytest.mark.root
def test_an_image_whose_systemd_has_failed_units_is_not_active(tmp_path: Path) -> None:
    image = systemd_image("debian-1")
    unit = "kernel-command-line.service"
    start = {"interval_s": 0.3, "timeout_s": 20.0, "retries": 1}

    def body(run: Path) -> None:
        node = Node(run)

        def run_with(command: str, name: str, **health: Any) -> str:
            check = Health("systemd", **{**start, **health})
            init = (*RUN, f'systemd.run="{command}"')
            return node.run(
                spec_of(image, name, systemd=True, health=check, namespaces=NETWORK, command=init)
            )

        assert run_with("/bin/false", "failing", start_s=patience(5.0)) == "ERROR"
        assert (
            "image failing is unhealthy: its health check (systemd) failed 1 time: failed units: "
            f"{unit}" == node.last("image.unhealthy")[1]
        )
        assert (
            run_with("/bin/false", "allowed", start_s=patience(30.0), allow_failed=(unit,))
            == "ACTIVE"
        )
        assert run_with("/bin/sleep 1000", "slow", start_s=patience(5.0)) == "ERROR"
        assert (
            f"systemd has not finished starting: waiting for {unit}"
            in node.last("image.unhealthy")[1]
        )
        assert node.images.stop_all() == "IDLE"

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_plain_debian_is_healthy_by_itself_and_a_unit_that_fails_later_is_told(
    tmp_path: Path,
) -> None:
    image = systemd_image("debian-1")

    def body(run: Path) -> None:
        node = Node(run)
        quick = Health("systemd", interval_s=0.3, timeout_s=20.0, retries=1, start_s=100.0)
        assert node.run(spec_of(image, "plain", systemd=True, namespaces=NETWORK)) == "ACTIVE"
        assert node.images.views()[0]["health"] == HEALTHY, "without a word in its description"
        assert (
            node.run(spec_of(image, "debian", systemd=True, namespaces=NETWORK, health=quick))
            == "ACTIVE"
        )
        process = node.images.newest("debian").process
        execute.start(
            node.images.place("debian"), ("systemd-run", "--unit=late", "/bin/false")
        ).wait()
        eventually(lambda: "image.degraded" in node.kinds())
        assert node.images.state() == "ACTIVE", "nothing follows from it"
        view = node.images.views()[0]
        assert (view["health"], view["retries"]) == (
            DEGRADED,
            0,
        ) and "failed units: late.service" in view["error"]
        execute.start(node.images.place("debian"), ("systemctl", "reset-failed")).wait()
        eventually(lambda: node.images.views()[0]["health"] == HEALTHY)
        assert (
            node.images.newest("debian").process == process
            and node.images.views()[0]["error"] == ""
        )
        assert node.images.stop_all() == "IDLE"

    run_as_agent(tmp_path / "run", body)


def test_a_description_without_health_stays_as_small_as_it_was() -> None:
    assert "health" not in ContainerSpec(systemd=True).to_wire()
