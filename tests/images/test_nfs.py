"""NFS: what may be asked for, what the kernel is told, and what is said when it does not do it.
tests/metal has real servers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from imageapi.events import unheard
from imageapi.node import child, mount, nfs
from imageapi.node.attach.attachments import Attachments
from imageapi.node.attach.fetch import Body
from imageapi.node.objects.objects import Objects
from imageapi.spec.container import parse_container
from imageapi.spec.objects import check_mount, parse_container_mount, parse_mount, shown
from imageapi.spec.options import FILESYSTEMS, parse_options
from imageapi.store.store import container_spec
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from tests.support.namespace import run_as_agent

EXPORT = {"kind": "nfs", "source": "filer.example.org:/export/home"}


@pytest.mark.parametrize(
    "source",
    ["10.0.0.1:/x", "[fd99::1]:/x", "filer:/", "filer:/with blank/and,comma", "filer:/über"],
)
def test_sources_that_servers_have(source: str) -> None:
    assert check_mount(parse_mount({**EXPORT, "source": source}))["source"] == source


@pytest.mark.parametrize(
    "source",
    [
        "filer",
        "/x",
        ":/x",
        "filer:x",
        "-filer:/x",
        "fi ler:/x",
        "filer:/a/../b",
        "filer:/a\nb",
        "filer:/a\0b",
        "filer:/a\\b",
        "f;r:/x",
        "filer:/" + "x" * 1001,
        7,
    ],
)
def test_sources_that_are_none(source: object) -> None:
    with pytest.raises(InputError, match="cannot use image"):
        check_mount(parse_mount({**EXPORT, "source": source}))


@pytest.mark.parametrize(
    ("options", "fstype"),
    [
        ("vers=3,nolock,hard,timeo=50,rsize=1048576", "nfs"),
        ("nfsvers=4.1,noatime,nosuid,sec=sys", "nfs"),
        ("", "nfs"),
        ("noload,errors=remount-ro", "ext4"),
        ("norecovery,nouuid", "xfs"),
        ("subvol=/@home,compress=zstd:3", "btrfs"),
        ("uid=1000,umask=022", "vfat"),
        ("noexec", "squashfs"),
    ],
)
def test_options_that_change_how_it_is_used(options: str, fstype: str) -> None:
    assert parse_options(options, fstype) == options


@pytest.mark.parametrize(
    ("options", "fstype"),
    [
        ("addr=10.0.0.9", "nfs"),
        ("mountaddr=10.0.0.9", "nfs"),
        ("clientaddr=10.0.0.9", "nfs"),
        ("sec=krb5", "nfs"),
        ("vers=2", "nfs"),
        ("vers=4.2 ro", "nfs"),
        ("timeo", "nfs"),
        ("timeo=-1", "nfs"),
        ("nolock=1", "nfs"),
        ("bg", "nfs"),
        ("fsc", "nfs"),
        ("errors=panic", "ext4"),
        ("journal_path=/dev/sda", "ext4"),
        ("logdev=/dev/sda", "xfs"),
        ("device=/dev/sda", "btrfs"),
        ("subvol=/../x", "btrfs"),
        ("noload", "squashfs"),
        ("suid", "ext4"),
        ("ro\0", "ext4"),
        ("timeo=\u0661", "nfs"),
        (["ro"], ""),
        ("ro," * 200, "nfs"),
    ],
)
def test_options_that_reach_further_are_refused(options: object, fstype: str) -> None:
    with pytest.raises(InputError, match="cannot use image object options"):
        parse_options(options, fstype)


@pytest.mark.parametrize("fstype", ["proc", "nfs", "overlay", "../ext4", "", None, ["ext4"]])
def test_only_file_systems_of_devices_are_on_devices(fstype: object) -> None:
    with pytest.raises(InputError, match="fstype"):
        check_mount(
            parse_mount(
                {
                    "kind": "attach",
                    "attach": {"kind": "local", "path": "/dev/sda"},
                    "fstype": fstype,
                }
            )
        )
    assert "ext4" in FILESYSTEMS


def test_what_an_earlier_version_has_taken_is_read_and_not_mounted(tmp_path: Path) -> None:
    taken = {"target": "/home", **EXPORT, "options": "vers=4.2,bg", "readonly": False}
    assert parse_container({"mounts": [taken]}).to_wire()["mounts"] == [taken], (
        "one such image must not end a head"
    )
    with pytest.raises(InputError, match="object options of nfs: got 'bg'"):
        container_spec({"mounts": [taken]})
    with pytest.raises(InputError, match="object options of nfs: got 'bg'"):
        Objects(tmp_path, Attachments(tmp_path, no_file), unheard).acquire(
            "mount", {**EXPORT, "options": "vers=4.2,bg"}, "user"
        )
    with pytest.raises(InputError, match="object options of ext4"):
        check_mount(
            {
                "kind": "overlay",
                "lower": [{"kind": "attach", "fstype": "ext4", "options": "errors=panic"}],
            }
        )


def no_file(url: str, offset: int) -> Body:
    raise AssertionError(url)


def test_container_yaml_and_the_objects_say_it_alike() -> None:
    given = {"target": "/home", **EXPORT, "readonly": True}
    found = parse_container({"mounts": [given]}).mounts[0]
    assert found == parse_container_mount(given) and found.spec == parse_mount(
        {**EXPORT, "readonly": True}
    )
    assert found.spec == parse_mount(
        {"kind": "uri", "uri": "nfs://filer.example.org/export/home", "readonly": True}
    )
    assert shown(found.spec) == "nfs filer.example.org:/export/home"


def test_what_is_written_waits_and_what_is_read_gives_up() -> None:
    assert nfs.kernel_options("", "10.0.0.1", readonly=False) == [
        "vers=4.2",
        "hard",
        "addr=10.0.0.1",
    ]
    assert nfs.kernel_options("", "10.0.0.1", readonly=True) == [
        "vers=4.2",
        "softerr",
        "timeo=100",
        "retrans=2",
        "addr=10.0.0.1",
    ]
    assert nfs.kernel_options("soft,timeo=5,vers=4.1", "::1", readonly=False) == [
        "soft",
        "timeo=5",
        "vers=4.1",
        "addr=::1",
    ]
    assert nfs.kernel_options("timeo=5", "::1", readonly=True) == [
        "timeo=5",
        "vers=4.2",
        "softerr",
        "retrans=2",
        "addr=::1",
    ]
    assert nfs.kernel_options("nfsvers=3,hard", "::1", readonly=False) == [
        "nfsvers=3",
        "hard",
        "nolock",
        "addr=::1",
    ]
    assert "nolock" not in nfs.kernel_options("vers=3,local_lock=flock", "::1", readonly=False)


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.ETIMEDOUT, Unreachable, "its server does not answer"),
        (errno.ECONNREFUSED, Unreachable, "is it up"),
        (errno.EACCES, OperationFailed, "its server refuses this node"),
        (errno.ENOENT, OperationFailed, "no such export"),
        (errno.EPROTONOSUPPORT, OperationFailed, "say another in `options`"),
        (errno.EINVAL, OperationFailed, "does not take the options vers=9"),
        (errno.ENOMEM, OperationFailed, "Cannot allocate memory"),
    ],
)
def test_errors_say_why_and_what_to_do(number: int, kind: type[LayercakeError], text: str) -> None:
    found = nfs.explain(number, "filer:/x", "vers=9")
    assert (
        type(found) is kind
        and str(found).startswith("cannot mount nfs filer:/x: ")
        and text in str(found)
    )


def test_a_host_that_nobody_knows_is_named() -> None:
    with pytest.raises(
        Unreachable, match=r"cannot mount nfs no-such-host\.invalid:/x: its host is not known"
    ):
        nfs.mount("no-such-host.invalid:/x", Path("/nonexistent"))


def test_a_call_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    import os

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert child.calls(lambda: os.open(fifo, os.O_RDONLY), 0.05) == errno.ETIMEDOUT
    assert child.calls(lambda: os.open(tmp_path / "none", os.O_RDONLY), 10) == errno.ENOENT
    assert child.calls(lambda: None, 10) == 0


@pytest.mark.root
def test_what_is_busy_is_taken_away_all_the_same(tmp_path: Path) -> None:
    def body(run: Path) -> None:
        target = run / "there"
        target.mkdir()
        assert mount.unmount_away(target), "nothing is mounted"
        mount.mount("tmpfs", target, "tmpfs")
        assert mount.unmount_away(target) and not mount.is_mounted(target)
        mount.mount("tmpfs", target, "tmpfs")
        with (target / "busy").open("w"):
            assert not mount.unmount_away(target), "it had to be lazy"
            assert not mount.is_mounted(target)
        assert mount.mount_away("none", target, "no-such-file-system", 0, "", 10) == errno.ENODEV

    run_as_agent(tmp_path / "run", body)
