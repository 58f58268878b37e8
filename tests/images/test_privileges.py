"""A tenant's container on a real kernel: it cannot forge, change addresses or reach the hardware,
however its programs start.

What it tries is what worked while a container had every capability: to send as another machine,
with that machine's address.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from smallimages import write

from imageapi.build.squash import squash
from imageapi.node import idmap
from imageapi.node.container import execute, oci
from imageapi.node.mount import mount_points
from imageapi.spec.container import ContainerSpec, parse_container
from imageapi.spec.health import Health
from imageapi.spec.privileges import CAPABILITIES, LEAST
from layercake.kraken.errors import InputError, OperationFailed
from tests.support.images import Node, assert_clean, eventually, spec_of, used_loops
from tests.support.namespace import run_as_agent

TRIES = {
    "ping": "busybox ping -c 1 -W 1 127.0.0.1",  # a raw socket: packets with any sender
    "address": "busybox ip addr add 192.0.2.77/32 dev lo",  # the victim's address
    "link": "busybox ip link set lo mtu 1400 up",
    "route": "busybox ip route add 198.51.100.0/24 dev lo",
    # a socket with that address, to fetch the victim's boot script with
    "fetch": "busybox httpd -p 192.0.2.77:4099 -h /tmp",
    "mount": "busybox mount -t tmpfs none /mnt",
    "mknod": "busybox mknod /door2 c 1 5",
    "device": "busybox head -c 1 /door",  # a device node that came with the image
    "core": "read old < /proc/sys/kernel/core_pattern && echo $old > /proc/sys/kernel/core_pattern",
    "sysfs": "echo add > /sys/devices/virtual/mem/null/uevent",
    "hostname": "busybox hostname stolen",
}
SCRIPT = "\n".join(
    (
        "#!/bin/sh",
        *(
            f"if {what} >/dev/null 2>&1; then echo {name} worked; else echo {name} refused; fi"
            for name, what in TRIES.items()
        ),
        "grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status",
        "",
    )
)
INIT = "#!/bin/sh\n/tries\necho tried\ntrap 'exit 0' TERM\nwhile :; do sleep 1 & wait $!; done\n"
NETWORK = ("pid", "ipc", "uts", "mount", "cgroup", "network")


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with a program that tries all, and with a device node where the node does not make
    its own."""
    tree = tmp_path_factory.mktemp("i") / "tree"
    for directory in ("bin", "dev", "etc", "mnt", "proc", "sys", "tmp"):
        (tree / directory).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox
    shutil.copy(busybox, tree / "bin/busybox")
    for applet in ("sh", "cat", "echo", "sleep", "grep"):
        (tree / "bin" / applet).symlink_to("busybox")
    write(tree / "init", INIT, 0o755)
    write(tree / "tries", SCRIPT, 0o755)
    os.mknod(tree / "door", 0o20666, os.makedev(1, 5))
    return squash(tree, tree.parent / "tenant.squashfs")


def test_who_may_load_modules_may_use_the_calls_for_it_and_nobody_else() -> None:
    """Before, a container with SYS_MODULE was refused by the filter."""

    def refused(*declared: str) -> set[str]:
        made = oci.config(
            ContainerSpec(capabilities=declared), root="/r", cgroup="/c", hostname="n", effective=-1
        )
        return {name for rule in made["linux"]["seccomp"]["syscalls"] for name in rule["names"]}

    assert refused() - refused("SYS_MODULE") == {"init_module", "finit_module", "delete_module"}
    assert refused() == refused("NET_ADMIN") and {"kexec_load", "bpf"} <= refused("SYS_MODULE")


def answers(text: str) -> dict[str, str]:
    found = [line.split() for line in text.splitlines()]
    return {words[0].rstrip(":"): words[1] for words in found if len(words) == 2}


def tried(node: Node) -> dict[str, str]:
    eventually(lambda: "tried" in node.images.logs("app", 50))
    return answers(node.images.logs("app", 50))


def exec_in(node: Node, *command: str) -> str:
    reader, writer = os.pipe()
    process = execute.start(node.images.place("app"), command, output=writer, errors=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    assert process.wait() == 0, text
    return text


def mask(names: tuple[str, ...]) -> int:
    return sum(1 << CAPABILITIES.index(name) for name in names)


@pytest.mark.root
def test_a_container_can_neither_forge_nor_reach_the_node(tmp_path: Path, tenant: Path) -> None:
    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        assert (
            node.run(spec_of(tenant, "app", namespaces=("pid", "ipc", "mount", "cgroup")))
            == "ACTIVE"
        ), repr(node.events)
        for how, found in (
            ("its init", tried(node)),
            ("a program started beside it", answers(exec_in(node, "/tries"))),
        ):
            assert {name: found[name] for name in TRIES} == dict.fromkeys(TRIES, "refused"), how
            assert int(found["CapBnd"], 16) == mask(LEAST), how
            assert found["NoNewPrivs"] == "1", how
        assert_clean(node, run, mounts, loops)

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_a_health_check_of_the_image_has_no_more_rights_than_the_image(
    tmp_path: Path, tenant: Path
) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        check = Health(
            "exec",
            command=("busybox", "ping", "-c", "1", "127.0.0.1"),
            interval_s=0.2,
            retries=1,
            start_s=1.0,
        )
        assert node.run(spec_of(tenant, "app", health=check)) == "ERROR"
        assert "permission denied" in node.last("image.unhealthy")[1]
        node.stop()

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_what_is_declared_is_had(tmp_path: Path, tenant: Path) -> None:
    def body(run: Path) -> None:
        node = Node(run)
        assert (
            node.run(spec_of(tenant, "app", namespaces=NETWORK, capabilities=("NET_ADMIN",)))
            == "ACTIVE"
        ), repr(node.events)
        found = tried(node)
        assert {name for name in TRIES if found[name] == "worked"} == {
            "address",
            "link",
            "route",
            "fetch",
        }
        assert node.stop() == "IDLE"
        assert (
            node.run(
                spec_of(
                    tenant,
                    "app",
                    namespaces=NETWORK,
                    capabilities=("ALL",),
                    no_new_privileges=False,
                )
            )
            == "ACTIVE"
        )
        found = tried(node)
        assert {"ping", "fetch", "mount", "mknod", "core", "hostname"} <= {
            name for name in TRIES if found[name] == "worked"
        }
        assert found["NoNewPrivs"] == "0"
        assert node.stop() == "IDLE"

    run_as_agent(tmp_path / "run", body)


@pytest.mark.root
def test_with_a_user_namespace_its_root_is_nobody_on_the_node(
    open_path: Path, tenant: Path
) -> None:
    def body(run: Path) -> None:
        node, mounts, loops = Node(run), set(mount_points()), used_loops()
        own = {"user_namespace": True, "capabilities": ("SYS_ADMIN",), "namespaces": NETWORK}
        assert node.run(spec_of(tenant, "app", **own)) == "ACTIVE", repr(node.events)
        found = tried(node)
        assert found["mount"] == "worked", "in a world of its own"
        assert {found[name] for name in ("device", "mknod", "core", "sysfs")} == {"refused"}
        owner = Path(f"/proc/{node.images.process_of('app').pid}").stat().st_uid
        assert owner == idmap.first_user("app") > 65535
        text = exec_in(
            node,
            "sh",
            "-c",
            "busybox id -u; busybox stat -c '%u %g' /init; echo x > /new; busybox stat -c %u /new",
        )
        assert text.split() == ["0", "0", "0", "0"]
        root = run / "containers" / node.images.instances()[0].id
        assert (root / "root/new").stat().st_uid == owner, "on the node it is nobody's"
        assert (root / "rw/upper/new").stat().st_uid == 0, "in the image's own terms it is root's"
        assert_clean(node, run, mounts, loops)

    run_as_agent(open_path / "run", body)


UNCOVER = """
exec 2>/dev/null
cd /proc; cat cmdline
busybox umount /proc/cmdline; busybox umount -l /proc/cmdline; cat /proc/cmdline
busybox mount -t proc none /mnt; cat /mnt/cmdline
busybox mount --bind /proc /mnt; cat /mnt/cmdline
busybox mount -o remount,rw,bind /proc/sys && echo writable
busybox umount -l /proc; cat cmdline /proc/cmdline
busybox mount -t proc none /proc; cat /proc/cmdline
busybox unshare -U -r -m -p -f --mount-proc cat /proc/cmdline
exit 0
"""


@pytest.mark.root
@pytest.mark.parametrize("namespaces", [NETWORK, ("pid", "ipc", "uts", "mount", "cgroup")])
def test_masks_and_filter_hold_where_it_may_mount(
    open_path: Path, tenant: Path, namespaces: tuple[str, ...]
) -> None:
    """With SYS_ADMIN in a user namespace neither was there."""

    def body(run: Path) -> None:
        node = Node(run)
        spec = spec_of(
            tenant, "app", user_namespace=True, capabilities=("SYS_ADMIN",), namespaces=namespaces
        )
        assert node.run(spec) == "ACTIVE", repr(node.events)
        text = exec_in(node, "sh", "-c", "grep -E '^(Seccomp|CapEff):' /proc/self/status")
        found = answers(text)
        assert found["Seccomp"] == "2"
        assert int(found["CapEff"], 16) == mask((*LEAST, "SYS_ADMIN"))
        assert exec_in(node, "sh", "-c", UNCOVER) == ""
        assert node.stop() == "IDLE"

    run_as_agent(open_path / "run", body)


def test_only_what_the_agent_has_can_be_declared() -> None:
    assert oci.capabilities(-1, ()) == [f"CAP_{name}" for name in CAPABILITIES if name in LEAST]
    assert oci.capabilities(-1, ("ALL",)) == [f"CAP_{name}" for name in CAPABILITIES]
    assert oci.capabilities(0b1001, ("ALL",)) == ["CAP_CHOWN", "CAP_FOWNER"]
    with pytest.raises(
        OperationFailed, match="cannot give a container the capability NET_RAW: the agent itself"
    ):
        oci.capabilities(0b1001, ("NET_RAW",))
    assert not {
        "NET_RAW",
        "NET_ADMIN",
        "SYS_ADMIN",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_PTRACE",
        "MKNOD",
        "BPF",
        "PERFMON",
        "SYS_TIME",
        "SYS_BOOT",
        "DAC_READ_SEARCH",
    } & set(LEAST)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["net_raw", "CAP_SYS_NICE"], ("NET_RAW", "SYS_NICE")),
        (["NET_RAW", "all"], ("ALL",)),
        (["CHOWN"], ()),
        ([], ()),
        (None, ()),
    ],
)
def test_capabilities_by_any_of_their_names(given: object, expected: tuple[str, ...]) -> None:
    assert parse_container({"capabilities": given}).capabilities == expected


@pytest.mark.parametrize(
    "change",
    [
        {"capabilities": "NET_RAW"},
        {"capabilities": ["NET_RAWW"]},
        {"capabilities": [1]},
        {"capabilities": {"NET_RAW": True}},
        {"user_namespace": 1},
        {"user_namespace": "yes"},
        {"no_new_privileges": 0},
    ],
)
def test_what_is_no_privilege_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot use image"):
        parse_container(change)


def test_who_may_become_root_inside() -> None:
    assert ContainerSpec().locked and not ContainerSpec(systemd=True).locked
    assert ContainerSpec(systemd=True, no_new_privileges=True).locked
    assert (
        parse_container(ContainerSpec(no_new_privileges=False).to_wire()).no_new_privileges is False
    )


def test_the_newest_capability_has_a_name() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert last < len(CAPABILITIES), "a name for it belongs into CAPABILITIES"
