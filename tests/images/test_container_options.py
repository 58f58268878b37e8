"""What a container may ask for: hostile wishes are refused, sound ones are granted by a real
crun."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.node.container import cgroup, oci
from imageapi.node.container.process import alive
from imageapi.node.container.runtime import effective_capabilities
from imageapi.node.mount import mount_points
from imageapi.spec.container import CONTAINER_FIELDS, ContainerSpec, Resources, parse_container
from imageapi.spec.objects import parse_container_mount
from imageapi.spec.privileges import CAPABILITIES
from layercake.kraken.errors import InputError, OperationFailed
from tests.support.images import Node, assert_clean, eventually, spec_of, used_loops
from tests.support.namespace import run_as_agent

FULL: dict[str, Any] = {
    "systemd": True,
    "command": ["/init", "x"],
    "env": {"A": "b"},
    "stop_timeout_s": 3.0,
    "restart": "always",
    "depends": ["db", "log:2"],
    "resources": {"memory": 1 << 28, "cpus": 1.5, "pids": 100},
    "devices": ["/dev/fuse", "/dev/infiniband"],
    "health": {
        "kind": "http",
        "port": 80,
        "path": "/up?x=1",
        "interval_s": 2.0,
        "timeout_s": 1.0,
        "retries": 2,
        "start_s": 5.0,
    },
    "hooks": {"createRuntime": [["/bin/true", "x"]], "poststop": [["/bin/rm", "/x"]]},
    "mounts": [
        {
            "target": "/home",
            "kind": "nfs",
            "source": "10.0.0.1:/export/home",
            "options": "nolock,vers=3",
            "readonly": True,
        }
    ],
    "workdir": "/srv",
    "namespaces": ["pid", "uts", "mount", "cgroup", "network"],
    "hostname": "web-1",
    "capabilities": ["NET_RAW", "SYS_NICE"],
    "no_new_privileges": False,
    "user_namespace": True,
    "head_api": True,
    "kernel_modules": True,
}

SCRIPT = """#!/bin/sh
echo "cwd=$(pwd) A=$A host=$(cat /proc/sys/kernel/hostname)"
echo "fuse=$(ls -l /dev/extra 2>&1)"
echo "interfaces=$(ls /sys/class/net | tr '\\n' ' ') pid=$$"
cat /data/hello 2>&1
touch /data/x 2>/dev/null && echo writable || echo readonly
trap 'exit 0' TERM
while :; do sleep 1 & wait $!; done
"""


@pytest.fixture(scope="module")
def notifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(
        tmp_path_factory.mktemp("i") / "teller.squashfs", "teller", script=SCRIPT
    )


def test_every_field_goes_there_and_back() -> None:
    without = {k: v for k, v in FULL.items() if k != "user_namespace"} | {
        "keep": ["/var/lib/db"]
    }  # they do not go together
    assert set(FULL) | set(without) == set(CONTAINER_FIELDS)
    for full in (FULL, without):
        spec = parse_container(full)
        assert parse_container(spec.to_wire()) == spec
        assert spec.to_wire() == full
    assert parse_container({"keep": "/srv/"}).keep == ("/srv",)
    assert set(ContainerSpec().to_wire()) == {
        "systemd",
        "command",
        "env",
        "stop_timeout_s",
        "restart",
    }, "a plain one stays small"


@pytest.mark.parametrize(
    "change",
    [
        {"keep": ["/"]},
        {"keep": ["srv"]},
        {"keep": ["/a", "/a/"]},
        {"keep": ["/a/../etc"]},
        {"keep": {"/a": "b"}},
        {"keep": ["/srv"], "user_namespace": True},
        {"depends": "db"},
        {"depends": ["../x"]},
        {"depends": [1]},
        {"resources": {"memory": -1}},
        {"resources": {"memory": 1.5}},
        {"resources": {"cpus": "2"}},
        {"resources": {"disk": 1}},
        {"resources": {"pids": True}},
        {"resources": [1]},
        {"devices": "/dev/fuse"},
        {"devices": ["/etc/shadow"]},
        {"devices": ["/dev/../etc"]},
        {"devices": ["/dev/"]},
        {"health": {}},
        {"health": {"kind": "ping"}},
        {"health": {"kind": "tcp"}},
        {"health": {"kind": "tcp", "port": 70000}},
        {"health": {"kind": "exec"}},
        {"health": {"kind": "exec", "command": []}},
        {"health": {"kind": "http", "port": 80, "path": "x"}},
        {"health": {"kind": "http", "port": 80, "path": "/a\r\nHost: x"}},
        {"health": {"kind": "systemd", "unit": "-H evil"}},
        {"health": {"kind": "systemd", "unit": "a b"}},
        {"health": {"kind": "tcp", "port": 1, "retries": 0}},
        {"health": {"kind": "tcp", "port": 1, "start_s": 999}},
        {"health": {"kind": "tcp", "port": 1, "extra": 1}},
        {"hooks": {"prestart": []}},
        {"hooks": {"poststop": [["relative"]]}},
        {"hooks": {"poststop": ["/bin/true"]}},
        {"hooks": {"poststop": [["/bin/../x"]]}},
        {"mounts": {}},
        {"mounts": [{"kind": "bind", "target": "x", "source": "/"}]},
        {"mounts": [{"kind": "bind", "target": "/../x", "source": "/"}]},
        {"mounts": [{"kind": "nfs", "target": "/x", "source": "/x"}]},
        {"mounts": [{"kind": "bind", "target": "/x", "source": "/", "options": "a b"}]},
        {"mounts": [{"kind": "magic", "target": "/x"}]},
        {
            "mounts": [
                {"kind": "attach", "target": "/x", "attach": {"kind": "local", "path": "sda"}}
            ]
        },
        {"workdir": "srv"},
        {"workdir": "/a/../b"},
        {"namespaces": ["pid"]},
        {"namespaces": ["mount"]},
        {"namespaces": ["mount", "user"]},
        {"namespaces": "mount"},
        {"hostname": "a b"},
        {"hostname": "-x"},
        {"hostname": "x" * 65},
        {"kernel_modules": "yes"},
        {"kernel_modules": 1},
    ],
)
def test_hostile_wishes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot use image"):
        parse_container(FULL | change)


def test_what_belongs_together_is_asked_for_together() -> None:
    with pytest.raises(InputError, match="systemd is true"):
        parse_container({"health": {"kind": "systemd", "unit": "ssh.service"}})
    with pytest.raises(InputError, match="uts"):
        parse_container({"hostname": "x", "namespaces": ["mount"]})


def test_limits_devices_and_hooks_reach_the_runtime() -> None:
    made = oci.config(
        parse_container(FULL),
        root="/r",
        cgroup="/c",
        hostname="node",
        effective=-1,
        devices=[oci.Device("/dev/fuse", "c", 10, 229, 0o666, 0, 0)],
        binds=[oci.Bind("/mnt/m1", "/home", True)],
    )
    rules = made["linux"]["resources"].pop("devices")
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert {"allow": True, "type": "c", "major": 10, "minor": 229, "access": "rwm"} in rules
    assert made["linux"]["resources"] == {
        "memory": {"limit": 1 << 28},
        "cpu": {"quota": 150_000, "period": 100_000},
        "pids": {"limit": 100},
    }
    assert made["linux"]["devices"][0]["minor"] == 229
    assert made["hooks"]["poststop"][0]["args"][-2:] == ["/bin/rm", "/x"]
    assert (made["process"]["cwd"], made["hostname"]) == ("/srv", "web-1")
    assert {"type": "network"} in made["linux"]["namespaces"] and {"type": "ipc"} not in made[
        "linux"
    ]["namespaces"]
    [home] = [m["options"] for m in made["mounts"] if m["destination"] == "/home"]
    assert {"ro", "nosuid", "nodev"} <= set(home)


def test_only_who_owns_the_node_opens_every_device() -> None:
    def rules(*capabilities: str) -> bool:
        spec = parse_container({"capabilities": list(capabilities)})
        made = oci.config(spec, root="/r", cgroup="/c", hostname="n", effective=-1)
        return "devices" in made["linux"].get("resources", {})

    assert rules() and rules("MKNOD", "NET_ADMIN") and not rules("SYS_ADMIN")


THIEF = """#!/bin/sh
steal() { head -c 1 "$1" >/dev/null 2>&1 && echo "stolen from $1" || echo "refused $1"; }
steal /data/disk; steal /data/below/disk
mknod /dev/disk b MAJOR MINOR && steal /dev/disk; mknod /dev/zeros c 1 5 && steal /dev/zeros
grep -E ' /data(/below)? ' /proc/self/mountinfo | cut -d' ' -f5,6 | sed 's/^/with /'
echo over
sleep 600
"""


@pytest.mark.root
def test_no_way_leads_to_a_disk_of_the_node(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Not by a device node in what is mounted, however it came there, nor by one that is made."""

    def body(run: Path) -> None:
        node = Node(run)
        (run / "data" / "below").mkdir(parents=True)
        disk = run / "disk.raw"
        disk.write_bytes(b"secret" * 4096)
        loop = subprocess.run(
            ["losetup", "-f", "--show", disk], check=True, capture_output=True, text=True
        ).stdout.strip()
        try:
            number = Path(loop).stat().st_rdev
            subprocess.run(["mount", "-t", "tmpfs", "x", run / "data" / "below"], check=True)
            for place in (run / "data", run / "data" / "below"):
                os.mknod(place / "disk", 0o60666, number)
            script = THIEF.replace("MAJOR", str(os.major(number)))
            image = build_plain_image(
                tmp_path_factory.mktemp("i") / "thief.squashfs",
                "thief",
                script=script.replace("MINOR", str(os.minor(number))),
            )
            mount = {"target": "/data", "kind": "bind", "source": str(run / "data")}
            node.run(
                spec_of(
                    image, "app", capabilities=("MKNOD",), mounts=(parse_container_mount(mount),)
                )
            )
            eventually(lambda: "over" in node.images.logs("app", 20))
            said = node.images.logs("app", 20)
            node.stop()
        finally:
            subprocess.run(["umount", run / "data" / "below"], check=True)
            subprocess.run(["losetup", "-d", loop], check=True)
        assert "stolen from /dev/zeros" in said, "what every container may open"
        # Making one is a capability that has to be asked for. The list of devices needs an agent
        # with SYS_RESOURCE, which this machine's root may not have.
        lists = effective_capabilities() >> CAPABILITIES.index("SYS_RESOURCE") & 1
        for name in ("/data/disk", "/data/below/disk", *(["/dev/disk"] if lists else [])):
            assert f"refused {name}" in said, said
        mounts = [line.split() for line in said.splitlines() if line.startswith("with ")]
        assert [line[1] for line in mounts] == ["/data", "/data/below"]
        assert all({"nosuid", "nodev"} <= set(line[2].split(",")) for line in mounts), mounts

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_container_gets_what_it_asks_for(tmp_path: Path, notifier: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        os.mknod("/dev/extra", 0o20600, os.makedev(1, 3))
        (run / "data").mkdir()
        (run / "data/hello").write_text("greetings\n")
        marker = run / "hooked"
        try:
            state = node.run(
                spec_of(
                    notifier,
                    "app",
                    workdir="/proc",
                    env=(("A", "one"),),
                    hostname="web-7",
                    devices=("/dev/extra",),
                    namespaces=("pid", "ipc", "uts", "mount", "cgroup", "network"),
                    mounts=(
                        parse_container_mount(
                            {
                                "target": "/data",
                                "kind": "bind",
                                "source": str(run / "data"),
                                "readonly": True,
                            }
                        ),
                    ),
                    hooks=(
                        ("createRuntime", (("/bin/touch", str(marker)),)),
                        ("poststop", (("/bin/rm", str(marker)),)),
                    ),
                )
            )
            assert state == "ACTIVE", repr(node.events)
            eventually(lambda: "readonly" in node.images.logs("app", 20))
            text = node.images.logs("app", 20)
            assert "cwd=/proc A=one host=web-7" in text
            assert "interfaces=lo  pid=1" in text or "interfaces=lo pid=1" in text
            assert "1,   3" in text and "greetings" in text
            assert marker.exists()
            node.stop()
            assert not marker.exists(), "the hook for its end was run"
        finally:
            Path("/dev/extra").unlink()

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_without_a_pid_namespace_nothing_is_left_behind(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    image = build_plain_image(
        tmp_path_factory.mktemp("i") / "forks.squashfs",
        "forks",
        script="#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho forked $!\nwait\n",
    )

    def body(run: Path) -> None:
        node = Node(run)
        mounts, loops = set(mount_points()), used_loops()
        node.run(spec_of(image, "app", namespaces=("mount", "cgroup"), stop_timeout_s=0.2))
        eventually(lambda: "forked" in node.images.logs("app", 5))
        init = node.images.process_of("app")
        members = [
            int(p)
            for p in (node.images.runtime.cgroup(node.images.instances()[0].id) / "cgroup.procs")
            .read_text()
            .split()
        ]
        assert init.pid in members and len(members) == 2
        node.stop()
        assert not alive(init)
        eventually(lambda: not any(Path(f"/proc/{pid}/root").exists() for pid in members))
        assert_clean(node, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_wishes_that_the_node_cannot_grant_are_told(tmp_path: Path, notifier: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        assert node.run(spec_of(notifier, "app", devices=("/dev/no-such-thing",))) == "ERROR"
        assert (
            "cannot give a container /dev/no-such-thing: No such file"
            in node.last("image.error")[1]
        )
        available = (cgroup.ROOT / "cgroup.controllers").read_text().split()
        if "memory" not in available:
            assert (
                node.run(spec_of(notifier, "app", resources=Resources(memory=1 << 26))) == "ERROR"
            )
            assert "cannot limit memory" in node.last("image.error")[1]
        node.stop()

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_controllers_are_handed_down_to_where_they_are_needed(tmp_path: Path) -> None:
    def body(run: Path) -> None:
        name = cgroup.ROOT.joinpath("cgroup.controllers").read_text().split()[0]
        top = f"test-delegate-{os.getpid()}"
        cgroup.delegate(f"{top}/inner", [name])
        inner = cgroup.ROOT / top / "inner"
        assert name in (inner / "cgroup.subtree_control").read_text().split()
        leaf = inner / "leaf"
        leaf.mkdir()
        assert name in (leaf / "cgroup.controllers").read_text().split()
        cgroup.delegate(f"{top}/inner", [name])
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        (leaf / "cgroup.procs").write_text(str(child))
        with pytest.raises(OperationFailed, match="it holds processes itself"):
            cgroup.delegate(f"{top}/inner/leaf", [name])
        with pytest.raises(OperationFailed, match="no such controller"):
            cgroup.delegate(top, ["nonsense"])
        assert not cgroup.remove(cgroup.ROOT / top)
        cgroup.end_all(leaf)
        os.waitpid(child, 0)
        cgroup.clear(cgroup.ROOT / top)
        assert not (cgroup.ROOT / top).exists()

    run_as_agent(tmp_path / "run", body)
