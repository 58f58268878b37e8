"""A thousand containers made and removed: nothing is left of them but their events."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from smallimages import build_plain_image

from imageapi.node.mount import mount_points
from imageapi.spec.health import Health
from imageapi.spec.objects import parse_container_mount
from tests.support.images import Node, assert_clean, eventually, open_handles, spec_of, used_loops
from tests.support.namespace import run_as_agent

CYCLES = 1000
READY = "#!/bin/sh\ntrap 'exit 0' TERM\nwhile :; do sleep 60 & wait $!; done\n"


def processes() -> set[int]:
    """The processes of this session: the supervisor, the agent and all containers."""
    session, found = os.getsid(0), set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if int((directory / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.add(int(directory.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def cgroups(node: Node) -> list[str]:
    return [str(d) for d, _, _ in os.walk(Path("/sys/fs/cgroup") / node.cgroup)]


@pytest.mark.root
def test_a_thousand_cycles_leak_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    images = [
        build_plain_image(tmp_path_factory.mktemp("i") / f"{n}.squashfs", str(n), script=READY)
        for n in "ab"
    ]
    extra = parse_container_mount(
        {
            "target": "/x",
            "kind": "attach",
            "attach": {"kind": "loopback", "path": str(images[1]), "readonly": True},
        }
    )
    scratch = parse_container_mount({"target": "/y", "kind": "tmpfs", "size": "1m"})
    check = Health("exec", ("true",), interval_s=60, start_s=10)

    def body(run: Path) -> None:
        node = Node(run)
        before, loops = set(mount_points()), used_loops()
        node.run(spec_of(images[0], "app", stop_timeout_s=0.05))
        node.stop()
        handles = open_handles()
        threads = threading.active_count()
        alive = processes()
        groups = cgroups(node)
        for number in range(CYCLES):
            thorough = number % 10 == 0  # mounts and a health check, which take a little longer
            spec = spec_of(
                images[number % 2],
                "app",
                stop_timeout_s=0.05,
                mounts=(extra, scratch) if thorough else (),
                health=check if thorough else None,
            )
            assert node.run(spec) == "ACTIVE", node.events[-3:]
            if number % 3 == 0:
                assert node.stop() == "IDLE"
        node.images.set_wanted([])
        node.stop()
        assert_clean(node, run, before, loops)
        assert node.images.objects.views() == [] and list((run / "objects").iterdir()) == []
        assert cgroups(node) == groups
        eventually(lambda: processes() == alive)
        eventually(lambda: threading.active_count() == threads and open_handles() == handles)
        assert len(list((run / "exits").iterdir())) <= 512
        assert not [
            k for k in node.kinds() if k in ("image.remains", "image.lazy-unmount", "image.error")
        ]

    run_as_agent(tmp_path / "run", body, timeout=400)
