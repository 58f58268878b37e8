"""Writing into a root that belongs to somebody else: no name in it leads out, and a file is there
whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from imageapi.node import idmap
from layercake.kraken.errors import OperationFailed
from minos.agent.files.manifest import Entry, Manifest, parse, to_wire
from minos.agent.files.writer import Root, merged

pytestmark = pytest.mark.root


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("etc", "usr/lib", "run", "root"):
        (root / name).mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nmunge:x:998:997::/:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\nmunge:x:997:\n")
    return root


@pytest.fixture
def root(image: Path) -> Iterator[Root]:
    found = Root(image)
    yield found
    found.close()


def entry(path: str, data: bytes = b"new\n", **more: object) -> Entry:
    return Entry(("*",), path, data, "d", **more)  # type: ignore[arg-type]


def test_a_file_is_written_with_its_owner_and_mode_and_only_when_it_is_another(
    root: Root, image: Path
) -> None:
    one = entry("/etc/munge/deep/munge.key", mode=0o400, owner="munge", group="997")
    assert root.write(one)
    facts = (image / "etc/munge/deep/munge.key").stat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_gid) == (0o400, 998, 997)
    assert (image / "etc/munge").stat().st_mode & 0o777 == 0o755
    assert (
        not root.write(one) and (image / "etc/munge/deep/munge.key").stat().st_ino == facts.st_ino
    )
    assert root.write(entry("/etc/munge/deep/munge.key", mode=0o600, owner="munge", group="997")), (
        "another mode is another file"
    )
    assert os.listdir(image / "etc/munge/deep") == ["munge.key"], "nothing is left of the writing"


def test_links_of_the_image_are_followed_within_it(root: Root, image: Path) -> None:
    root.write(entry("/lib/app/x"))
    assert (image / "usr/lib/app/x").read_text() == "new\n"
    (image / "var").symlink_to("/run")
    root.write(entry("/var/y"))
    assert (image / "run/y").read_text() == "new\n", "an absolute link is of the image's own root"


def test_no_link_leads_out(root: Root, image: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "shadow").write_text("ours\n")
    (image / "etc/up").symlink_to("../../../outside")
    (image / "etc/abs").symlink_to(outside)
    (image / "etc/target").symlink_to(outside / "shadow")
    for path in ("/etc/up/shadow", "/etc/abs/shadow"):
        try:
            root.write(entry(path))
        except OperationFailed:
            continue
    assert (outside / "shadow").read_text() == "ours\n" and os.listdir(outside) == ["shadow"]
    root.write(entry("/etc/target"))
    assert (outside / "shadow").read_text() == "ours\n" and not (
        image / "etc/target"
    ).is_symlink(), "the link itself is replaced"
    (image / "etc/magic").symlink_to("/proc/self/root")
    with pytest.raises(OperationFailed):
        root.write(entry("/etc/magic/x"))


def test_a_race_with_who_swaps_directories_for_links_is_not_lost(
    root: Root, image: Path, tmp_path: Path
) -> None:
    """A container that runs may do so while its files are written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    stop = threading.Event()

    def swap() -> None:
        place = image / "etc/conf"
        while not stop.is_set():
            for make in ("mkdir", "symlink_to"):
                with contextlib.suppress(OSError):
                    getattr(place, make)(*((outside,) if make == "symlink_to" else ()))
                    place.rename(image / "etc/old")
                subprocess.run(["rm", "-rf", str(image / "etc/old"), str(place)], check=False)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(300):
            try:
                root.write(entry("/etc/conf/x", b"%d" % number))
            except OperationFailed:
                continue
    finally:
        stop.set()
        thread.join()
    assert os.listdir(outside) == []


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_odd_things_in_its_place(root: Root, image: Path, kind: str) -> None:
    place = image / "etc/odd"
    if kind == "directory":
        place.mkdir()
        with pytest.raises(OperationFailed, match=r"cannot write /etc/odd: Is a directory"):
            root.write(entry("/etc/odd"))
        return
    if kind == "fifo":
        os.mkfifo(place)
    else:
        os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert root.write(entry("/etc/odd")) and place.read_text() == "new\n"


def test_a_file_only_where_its_directory_is(root: Root, image: Path) -> None:
    assert not root.write(entry("/etc/ssh/key", within="/etc/ssh"))
    assert not (image / "etc/ssh").exists()
    (image / "etc/ssh").mkdir()
    assert root.write(entry("/etc/ssh/key", within="/etc/ssh"))
    root.write(entry("/root/.ssh/authorized_keys", directory=0o700))
    assert (image / "root/.ssh").stat().st_mode & 0o777 == 0o700


def test_an_owner_that_the_image_does_not_have_is_an_error(root: Root) -> None:
    with pytest.raises(OperationFailed, match="there is no 'slurm' in its /etc/passwd"):
        root.write(entry("/etc/x", owner="slurm"))


def test_a_hosts_file_keeps_the_lines_of_the_image(root: Root, image: Path) -> None:
    (image / "etc/hosts").write_text("10.0.0.1 db n1 # ours\n")
    root.write(
        entry("/etc/hosts", b"127.0.0.1 localhost\n10.1.0.11 n1\n10.1.0.12 n2\n", beside=True)
    )
    assert (
        image / "etc/hosts"
    ).read_text() == "10.0.0.1 db n1 # ours\n127.0.0.1 localhost\n10.1.0.12 n2\n"
    assert merged(b"", b"1.1.1.1 a\n") == b"1.1.1.1 a\n"


def test_in_a_user_namespace_root_is_the_namespaces(image: Path, tmp_path: Path) -> None:
    """The overlay of a container with one: what is written belongs to its users. Mounts need a
    place of their own."""
    script = """
import sys
from pathlib import Path
from imageapi.node import idmap, mount
from minos.agent.files.manifest import Entry
from minos.agent.files.writer import Root
base = Path(sys.argv[1])
mount.mount("tmpfs", base, "tmpfs", 0, "mode=755")
(base / "image/etc").mkdir(parents=True)
(base / "image/etc/passwd").write_text("munge:x:998:997::/:/bin/false\\n")
first = idmap.first_user("app")
root = idmap.overlay(base / "image", base / "bundle", "10%", first)
def work():
    opened = Root(root, first)
    assert opened.write(Entry(("*",), "/etc/new/x", b"new", "d", owner="munge"))
    assert not opened.write(Entry(("*",), "/etc/new/x", b"new", "d", owner="munge"))
    opened.close()
idmap.as_user(first, work)
facts, above = (root / "etc/new/x").stat(), (root / "etc/new").stat()
print(facts.st_uid - first, facts.st_gid - first, above.st_uid - first)
"""
    base = tmp_path / "base"
    base.mkdir()
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", script, str(base)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    if "needs a Linux of 6.3" in done.stderr:
        pytest.skip(
            f"the kernel here has no idmapped tmpfs: {done.stderr.strip().splitlines()[-1]}"
        )
    assert done.stdout.split() == ["998", "0", "0"], done.stderr
    assert idmap.first_user("app") > 0


def test_a_manifest_survives_the_disk_and_says_which_file_is_for_whom() -> None:
    wire = {
        "mark": "m",
        "files": [
            {"to": ["*"], "path": "/etc/motd", "data": "YQ==", "digest": "1", "mode": "0644"},
            {
                "to": ["app", "web:1"],
                "path": "/etc/motd",
                "data": "Yg==",
                "digest": "2",
                "mode": "0600",
                "on_change": "restart",
            },
            {"to": ["minos"], "path": "/etc/own", "data": "Yw==", "digest": "3", "mode": "0644"},
            {"to": ["web"], "path": "/etc/motd", "leave": True},
            {"to": ["*"], "path": "/etc/bad", "error": "line 3: no"},
        ],
    }
    found = parse(wire)
    assert parse(to_wire(found)) == found
    assert (
        found.chosen("app:2.0")["/etc/motd"].data == b"b"
        and found.chosen("db")["/etc/motd"].data == b"a"
    )
    assert "/etc/motd" not in found.chosen("web:1"), "left as the image has it: the last word"
    assert list(found.chosen("minos")) == ["/etc/own"] and "/etc/own" not in found.chosen("app")
    before = Manifest("l", (Entry(("*",), "/etc/bad", b"good", "9"),))
    assert found.over(before).chosen("db")["/etc/bad"].data == b"good", (
        "what cannot be made stays as it was"
    )
    assert found.over(None).chosen("db")["/etc/bad"].error


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"mark": "m"},
        {"mark": 1, "files": []},
        {"mark": "m", "files": [{}]},
        {
            "mark": "m",
            "files": [{"to": ["*"], "path": "etc", "data": "", "digest": "", "mode": "0644"}],
        },
        {
            "mark": "m",
            "files": [{"to": ["*"], "path": "/a/../b", "data": "", "digest": "", "mode": "0644"}],
        },
        {
            "mark": "m",
            "files": [{"to": ["*"], "path": "/a", "data": "!", "digest": "", "mode": "0644"}],
        },
        {
            "mark": "m",
            "files": [{"to": ["*"], "path": "/a", "data": "", "digest": "", "mode": "rwx"}],
        },
        {
            "mark": "m",
            "files": [
                {
                    "to": ["*"],
                    "path": "/a",
                    "data": "",
                    "digest": "",
                    "mode": "0644",
                    "on_change": "rm -rf",
                }
            ],
        },
    ],
)
def test_what_is_no_manifest_is_refused(wrong: object) -> None:
    with pytest.raises(OperationFailed, match="not as agreed"):
        parse(wrong)
