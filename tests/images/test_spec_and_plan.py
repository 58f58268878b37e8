"""What is wanted is checked; what must change follows from facts alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from imageapi.node.container import oci
from imageapi.node.container.process import NO_PROCESS
from imageapi.node.imageset.plan import (
    NO_FAILURE,
    Failure,
    Instance,
    Phase,
    difference,
    instance_id,
    next_failure,
    restarts,
    state,
    successors,
)
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec, parse_image, parse_images
from imageapi.spec.privileges import LEAST
from imageapi.spec.state import LastError
from layercake.kraken.errors import InputError

GOOD = {
    "name": "app",
    "digest": "blake2b:" + "a" * 64,
    "size": 10,
    "url": "http://10.0.0.1:8081/images/" + "a" * 64,
    "container": {
        "systemd": True,
        "command": ["/init", "x"],
        "env": {"A": "b"},
        "stop_timeout_s": 3,
        "restart": "always",
    },
}


def spec(name: str = "app", letter: str = "a", **container: Any) -> ImageSpec:
    return ImageSpec(name, "blake2b:" + letter * 64, 1, "http://h/x", ContainerSpec(**container))


def instance(image: ImageSpec, phase: Phase = Phase.RUNNING) -> Instance:
    return Instance(f"{image.name}-{image.digest[-1]}", image, phase, NO_PROCESS)


def test_wire_form_goes_there_and_back() -> None:
    found = parse_image(GOOD)
    assert parse_image(found.to_wire()) == found
    assert found.container == ContainerSpec(True, ("/init", "x"), (("A", "b"),), 3.0, "always")
    assert parse_image({**GOOD, "container": None}).container == ContainerSpec()


@pytest.mark.parametrize(
    "name", ["2", "web2", "app-2.0", "app-2.0:2026.11", "0.1-rc.3", "A_b", "x" * 100]
)
def test_names_with_digits_dots_and_dashes_are_fine(name: str) -> None:
    assert parse_image({**GOOD, "name": name}).name == name


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../x"},
        {"name": ""},
        {"name": "-rf"},
        {"name": "a/b"},
        {"name": "a b"},
        {"name": "a:b:c"},
        {"name": "a\n"},
        {"name": ".."},
        {"name": "x" * 101},
        {"name": 5},
        {"digest": "sha256:" + "a" * 64},
        {"digest": "blake2b:" + "A" * 64},
        {"digest": "blake2b:../x"},
        {"digest": None},
        {"size": -1},
        {"size": True},
        {"size": "10"},
        {"url": "ftp://h/x"},
        {"url": "http://h/a b"},
        {"url": "file://etc"},
        {"url": None},
        {"container": {"command": "sh -c x"}},
        {"container": {"command": ["a\0b"]}},
        {"container": {"env": {"A=B": "c"}}},
        {"container": {"env": ["A"]}},
        {"container": {"env": {"A": 1}}},
        {"container": {"stop_timeout_s": -1}},
        {"container": {"stop_timeout_s": True}},
        {"container": {"stop_timeout_s": 1e9}},
        {"container": {"restart": "sometimes"}},
    ],
)
def test_hostile_specs_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot use image"):
        parse_image(GOOD | change)


def test_one_name_once() -> None:
    with pytest.raises(InputError, match="twice"):
        parse_images([GOOD, GOOD])


def test_instance_ids_are_safe_and_distinct() -> None:
    names = ("a:b", "a_b", "a.b", "2", "x" * 100)
    ids = [instance_id(spec(name), number) for number, name in enumerate(names)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,80}", i) for i in ids)
    assert instance_id(spec("a"), 1) != instance_id(spec("a"), 2)


def test_what_must_change() -> None:
    a, b = spec("a"), spec("b")
    running = instance(a)
    assert difference([a], [running]) == ([], [])
    assert difference([b], [running]) == ([running], [b])
    assert difference([spec("a", "c")], [running]) == ([running], [spec("a", "c")])
    assert difference([spec("a", systemd=True)], [running]) == (
        [running],
        [spec("a", systemd=True)],
    )
    dead = instance(a, Phase.EXITED)
    assert difference([a], [dead]) == ([dead], [a])
    assert difference([a], [running, instance(a)])[1] == []


def test_another_address_is_not_another_image() -> None:
    moved = ImageSpec("a", spec("a").digest, 1, "http://elsewhere/", ContainerSpec())
    assert difference([moved], [instance(spec("a"))]) == ([], [])


@pytest.mark.parametrize(
    ("wanted", "instances", "failures", "expected"),
    [
        ([], [], [], "IDLE"),
        ([spec()], [], [], "IDLE"),
        ([spec()], [instance(spec())], [], "ACTIVE"),
        ([spec()], [instance(spec(), Phase.FINISHED)], [], "ACTIVE"),
        ([spec(letter="b")], [instance(spec())], [], "UPDATE"),
        ([], [instance(spec())], [], "UPDATE"),
        ([spec(), spec("z")], [instance(spec())], [], "UPDATE"),
        ([spec()], [instance(spec(), Phase.EXITED)], [Failure(1, "x", 5.0)], "ERROR"),
        ([spec()], [instance(spec())], [Failure(1, "y", 5.0), Failure(3, "x", 5.0)], "FATAL"),
        ([spec()], [instance(spec(), Phase.PREPARED)], [], "IDLE"),
        ([spec()], [instance(spec(), Phase.UNHEALTHY)], [], "UPDATE"),
        ([spec()], [instance(spec())], [Failure(3, "x", 0.0)], "ACTIVE"),
        (
            [spec()],
            [Instance("i", spec(), Phase.RUNNING, NO_PROCESS, health="starting")],
            [],
            "UPDATE",
        ),
        (
            [spec()],
            [Instance("i", spec(), Phase.RUNNING, NO_PROCESS, health="healthy")],
            [],
            "ACTIVE",
        ),
    ],
)
def test_the_state_of_a_set(
    wanted: list[ImageSpec], instances: list[Instance], failures: list[Failure], expected: str
) -> None:
    assert state(wanted, instances, failures) == expected


def test_successors_by_name_then_in_order() -> None:
    a1, b1, a2, c2, d2 = (
        instance(spec(n, d))
        for n, d in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "2"), ("d", "2"))
    )
    assert successors([a1, b1], [c2, a2, d2]) == ([(a1, a2), (b1, c2)], [d2])
    assert successors([a1], []) == ([(a1, None)], [])
    assert successors([], [c2]) == ([], [c2])


def test_restart_policies() -> None:
    table = {
        policy: [restarts(ContainerSpec(restart=policy), status) for status in (0, 1, 137, None)]
        for policy in ("never", "on-failure", "always")
    }
    assert table == {
        "never": [False] * 4,
        "on-failure": [False, True, True, True],
        "always": [True] * 4,
    }


def test_back_off_doubles() -> None:
    waits, failure = [], NO_FAILURE
    for _ in range(3):
        failure = next_failure(
            failure, LastError.DIED, "it ended", 100.0, steady=False, final=False
        )
        waits.append(failure.retry_at - 100.0)
    assert waits == [5.0, 10.0, 20.0] and failure.fatal
    steady = next_failure(failure, LastError.DIED, "it ended", 100.0, steady=True, final=False)
    assert (steady.count, steady.retry_at) == (1, 100.0), (
        "what had run for long is tried again at once"
    )
    assert next_failure(
        NO_FAILURE, LastError.UNHEALTHY, "sick", 100.0, steady=False, final=True
    ).fatal


def test_the_runtime_configuration() -> None:
    made = oci.config(
        ContainerSpec(True, (), (("PATH", "/x"),)),
        root="/r",
        cgroup="/c/i",
        hostname="n1",
        effective=0b1001,
    )
    assert made["process"]["args"][0] == "/sbin/init"
    assert made["process"]["capabilities"]["bounding"] == ["CAP_CHOWN", "CAP_FOWNER"]
    assert "PATH=/x" in made["process"]["env"] and "container=crun" in made["process"]["env"]
    assert {"/run", "/tmp", "/dev/console", "/sys/fs/cgroup"} <= {
        m["destination"] for m in made["mounts"]
    }
    assert "rlimits" not in made["process"] and "resources" not in made["linux"]
    assert "network" not in [n["type"] for n in made["linux"]["namespaces"]]
    plain = oci.config(
        ContainerSpec(False, ("/bin/job",)),
        root="/r",
        cgroup="/c/i",
        hostname="n1",
        effective=-1,
        console="",
    )
    assert plain["process"]["args"] == ["/bin/job"] and len(
        plain["process"]["capabilities"]["bounding"]
    ) == len(LEAST)
    assert not {"/run", "/dev/console"} & {m["destination"] for m in plain["mounts"]}
