"""The images that the demo and CI use: built for real, and run as a node runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from sampleimages import slurm_image, web_image
from serviceimages import SLURM_SCRIPTS

from imageapi.spec.health import parse_health
from tests.support.images import Node, eventually, spec_of
from tests.support.namespace import run_as_agent

pytestmark = pytest.mark.root
NETWORK = ("pid", "ipc", "uts", "mount", "cgroup", "network")


def test_the_web_server_image_is_well_when_its_server_answers(tmp_path: Path) -> None:
    image = web_image("web-1")

    def body(run: Path) -> None:
        node = Node(run)
        health = parse_health(
            {"kind": "http", "port": 80, "interval_s": 0.5, "timeout_s": 2, "start_s": 60}
        )
        assert (
            node.run(spec_of(image, "web", systemd=True, health=health, namespaces=NETWORK))
            == "ACTIVE"
        )
        pid = node.last("image.started")[2]["pid"]
        ask = ["nsenter", "-t", str(pid), "-n", "curl", "-s", "http://127.0.0.1/"]
        eventually(
            lambda: subprocess.run(ask, capture_output=True, check=False).stdout == b"web-1\n", 30
        )
        assert "image.unhealthy" not in node.kinds()
        assert node.images.stop_all() == "IDLE"

    run_as_agent(tmp_path / "run", body)


def test_the_slurm_image_has_no_key_unless_it_is_given_one(tmp_path: Path) -> None:
    listing = [
        subprocess.run(
            ["unsquashfs", "-lln", str(image)], capture_output=True, text=True, check=True
        ).stdout
        for image in (slurm_image("slurm-1", None), slurm_image("slurm-1", b"k" * 64))
    ]
    assert "munge.key" not in listing[0]
    line = next(x for x in listing[1].splitlines() if x.endswith("/etc/munge/munge.key"))
    assert line.startswith("-r--------") and " 64 " in line and "0/0" not in line
    assert "/usr/sbin/slurmd" in listing[0] and "/usr/lib/layercake/prolog" in listing[0]


@pytest.fixture
def busy(tmp_path: Path) -> Callable[..., int]:
    """`layercake-busy` as it is in a container, over a directory of the test's own."""
    script = (
        (SLURM_SCRIPTS / "layercake-busy")
        .read_text()
        .replace("/run/layercake/busy.d", str(tmp_path / "flags"))
    )
    (tmp_path / "flags").mkdir()
    (tmp_path / "layercake-busy").write_text(script)
    command = ["sh", str(tmp_path / "layercake-busy")]
    return lambda *words: (
        subprocess.run([*command, *words], capture_output=True, check=False).returncode
    )


def test_a_node_is_busy_as_long_as_anybody_says_so(
    busy: Callable[..., int], tmp_path: Path
) -> None:
    flags = tmp_path / "flags"
    assert [busy("busy", "slurm-1"), busy("busy", "slurm-2"), busy("free", "slurm-1")] == [0, 0, 0]
    assert [f.name for f in flags.iterdir()] == ["slurm-2"]
    assert [busy("free", "slurm-2"), busy("free", "slurm-2")] == [0, 0], "saying it twice is fine"
    assert [busy("busy", "../x"), busy("busy", ".x"), busy("later"), busy()] == [2, 2, 2, 2]
    assert list(flags.iterdir()) == []
