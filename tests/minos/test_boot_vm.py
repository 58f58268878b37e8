"""minOS in a QEMU machine: from the kernel to a systemd image that it fetched from a head, and a
roll."""

from __future__ import annotations

import datetime
import hashlib
import re
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image, build_systemd_image

from imageapi.store.store import ImageStore
from minos import init
from minos.events import NODE_API
from tests.support.fake_head import UP, FakeHead
from tests.support.minosvm import (
    CACHE,
    MAC,
    Built,
    FileService,
    Machine,
    document,
    run,
    start,
    unused_port,
)

pytestmark = pytest.mark.vm

LIMITED = """cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /sys/fs/cgroup/cpu.max
cat /disk/init && exec /init"""


def test_minos_boots_runs_systemd_and_rolls(
    tmp_path: Path, minos: Built, files: tuple[ImageStore, FileService]
) -> None:
    store, service = files
    head = FakeHead(tmp_path / "pki", str(uuid.uuid4()), public="10.0.2.2", hello_s=2.0)
    plain = build_plain_image(tmp_path / "plain.squashfs", "plain-marker")
    system = build_systemd_image(tmp_path / "system.squashfs", CACHE / "images", version="vm-test")
    one, two = (
        document(store, service, system, "system", True),
        document(store, service, plain, "plain", False),
    )
    head.document = {"revision": 1, "goal": UP, "images": [one], "requests": []}
    machine = start(tmp_path, minos, head)
    try:
        head.wait(
            lambda: (
                "minos: " in machine.console()
                and "init: network eth0 10.0.2.15/24" in machine.console()
            ),
            90,
        )
        head.wait(lambda: head.joins, 60)
        assert head.joins[0]["mac"] == MAC
        head.wait(lambda: head.state().get("image") == "ACTIVE", 120)
        head.wait(
            lambda: "LAYERCAKE-IMAGE version=vm-test multi-user reached on n1" in machine.console(),
            120,
        )
        head.log("system", "multi-user reached", 120)
        head.want([two])
        head.wait(
            lambda: (
                head.state().get("image") == "ACTIVE"
                and head.hellos[-1].cfg_revision == head.document["revision"]
            ),
            120,
        )
        head.wait(lambda: [e for e in head.events if e["kind"] == "image.rolled"], 20)
        head.log("plain", "plain-marker", 60)
        limits_and_disk(head, two, plain)
        node_api(head, machine)
    finally:
        machine.stop()
        head.close()
        print(machine.console()[-6000:])


def limits_and_disk(head: FakeHead, image: dict[str, Any], disk: Path) -> None:
    """Limits are there in cgroup v2, and a disk that is served by a foreign NBD server."""
    port = unused_port()
    server = subprocess.Popen(
        [
            "qemu-nbd",
            "-b",
            "127.0.0.1",
            "-p",
            str(port),
            "-f",
            "raw",
            "-r",
            "-t",
            "-x",
            "disk",
            str(disk),
        ]
    )
    try:
        container = {
            **image["container"],
            "command": ["sh", "-c", LIMITED],
            "resources": {"memory": 64 << 20, "pids": 50, "cpus": 0.5},
            "mounts": [
                {
                    "target": "/disk",
                    "kind": "uri",
                    "uri": f"nbd://10.0.2.2:{port}/disk",
                    "readonly": True,
                }
            ],
            "health": {"kind": "exec", "command": ["sh", "-c", "[ -x /disk/init ]"], "start_s": 60},
        }
        head.want([{**image, "name": "limited", "container": container}])
        head.wait(
            lambda: (
                head.state().get("image") in ("ACTIVE", "ERROR")
                and head.hellos[-1].cfg_revision == head.document["revision"]
            ),
            120,
        )
        assert head.state()["image"] == "ACTIVE", [
            e["text"] for e in head.events if e["kind"] == "image.error"
        ]
        head.wait(lambda: "image.healthy" in head.kinds(), 60)
        text = head.log("limited", "#!/bin/sh\n", 60)
        assert text.startswith(f"{64 << 20}\n50\n50000 100000\n#!/bin/sh\n"), text
        head.want([{**image, "name": "plain"}])
        head.wait(
            lambda: (
                head.state().get("image") == "ACTIVE"
                and head.hellos[-1].cfg_revision == head.document["revision"]
            ),
            120,
        )
    finally:
        server.kill()
        server.wait()


def node_api(head: FakeHead, machine: Machine) -> None:
    """Commands by busybox's nsenter, and how much memory the agent takes."""
    assert (
        run(head, machine, "echo $$ $(cat /proc/1/comm) $(cat /proc/self/cgroup)", "plain").split()[
            1
        ]
        == "init"
    )
    assert run(head, machine, "cat /proc/sys/fs/inotify/max_user_instances") == "1024\n"
    assert "nbd" in run(head, machine, "lsmod"), "the module was loaded when it was needed"
    assert "lc-" not in run(head, machine, "cat /sys/block/nbd*/backend 2>/dev/null; true"), (
        "and the disk is let go of"
    )
    status = run(head, machine, "cat /proc/$(cat /run/layercake/agent.pid)/status")
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])
    print(f"the agent has {resident >> 10} MiB")
    assert resident < 30 << 10


# -- clocks: a whole machine with another time than its head

HOUR, YEARS = 3600, 20 * 365 * 86400


@pytest.fixture
def two(tmp_path: Path, files: tuple[ImageStore, FileService]) -> list[dict[str, Any]]:
    """Two images to go to and fro between."""
    return [
        document(*files, build_plain_image(tmp_path / f"{name}.squashfs", name), name, False)
        for name in ("one", "two")
    ]


def told(head: FakeHead, kind: str) -> list[dict[str, Any]]:
    return [event for event in head.events if event["kind"] == kind]


@pytest.mark.parametrize(
    ("rtc", "later"),
    [("1980-01-01T00:00:00", (-HOUR, YEARS)), ("2090-06-01T00:00:00", (HOUR, -YEARS))],
)
def test_a_machine_whose_battery_is_dead_joins_and_has_the_heads_time(
    tmp_path: Path, minos: Built, two: list[dict[str, Any]], rtc: str, later: tuple[int, ...]
) -> None:
    """The head's authority is not valid yet, or no longer, by the clock that the machine wakes up
    with. Then the node's clock steps under the running agent, by `date -s`."""
    head = FakeHead(tmp_path / "pki", str(uuid.uuid4()), public="10.0.2.2", hello_s=2.0)
    head.document = {"revision": 1, "goal": UP, "images": two[:1], "requests": []}
    off = datetime.datetime.fromisoformat(rtc + "+00:00").timestamp() - (now := time.time())
    machine = start(tmp_path, minos, head, rtc, time=str(int(now)))
    try:
        head.wait(lambda: head.joins, 120)
        (said,) = re.findall(
            r"the clock was ([-+]\d+) s off the head's, and is set", machine.console()
        )
        assert abs(int(said) - off) < init.CLOCK_OFF_S
        head.wait_for(image="ACTIVE")
        head.wait(lambda: told(head, "image.started"))
        assert abs(told(head, "image.started")[0]["at"] - time.time()) < init.CLOCK_OFF_S, (
            "the node tells the time of the head"
        )
        head.wait(lambda: told(head, NODE_API.name))
        for step in later:
            steps(head, machine, step, two)
    finally:
        machine.stop()
        head.close()
        print(machine.console()[-3000:])


def steps(head: FakeHead, machine: Machine, step: int, images: list[dict[str, Any]]) -> None:
    """The node's clock steps: the agent speaks on, its container runs on, and it does what is
    wanted next. Then it steps back."""
    pid = run(head, machine, "cat /proc/sys/kernel/random/boot_id /run/layercake/agent.pid")
    started, rolled = len(told(head, "image.started")), len(told(head, "image.rolled"))
    run(head, machine, f"date -s @{int(time.time()) + step}")
    seen = len(head.hellos)
    head.wait(lambda: len(head.hellos) >= seen + 3)
    assert head.state()["image"] == "ACTIVE" and len(told(head, "image.started")) == started, step
    running = head.document["images"][0]["name"]
    head.want([image for image in images if image["name"] != running])
    head.wait_for(image="ACTIVE")
    head.wait(lambda: len(told(head, "image.rolled")) == rolled + 1)
    at = told(head, "image.rolled")[-1]["at"]
    assert abs(at - time.time() - step) < init.CLOCK_OFF_S, (
        "history is by the clock that people see"
    )
    assert 0 <= told(head, "image.rolled")[-1]["data"]["gap_ms"] < 60_000
    run(head, machine, f"date -s @{int(time.time())}")
    assert (
        run(head, machine, "cat /proc/sys/kernel/random/boot_id /run/layercake/agent.pid") == pid
        and len(head.joins) == 1
    )


def test_digest_of_the_store_is_that_of_the_file(tmp_path: Path) -> None:
    path = build_plain_image(tmp_path / "plain.squashfs", "x")
    expected = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
    assert ImageStore(tmp_path / "s").add(path, "x", {}).digest == f"blake2b:{expected}"
