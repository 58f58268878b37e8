"""Images from every kind of source, by the real tools: the same digest each time, and errors that
say what is wrong."""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from imageapi.build.build import Built, build
from imageapi.node.mount import mount_points
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from tests.build.conftest import DOCKERFILE, Build, busybox_tree, unpack

pytestmark = pytest.mark.root
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
"""cap_net_raw=ep, as `setcap` writes it (linux/capability.h, struct vfs_cap_data, revision 2)."""


ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, who)
    for tag, permissions, who in (
        (0x01, 7, 0xFFFFFFFF),
        (0x02, 4, 1000),
        (0x04, 5, 0xFFFFFFFF),
        (0x10, 5, 0xFFFFFFFF),
        (0x20, 5, 0xFFFFFFFF),
    )
)
"""user::rwx user:1000:r-- group::r-x mask::r-x other::r-x (linux/posix_acl_xattr.h)."""


def tool(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def test_a_dockerfile_becomes_an_image_and_says_how_it_runs(
    context: Path, make: Build, tmp_path: Path
) -> None:
    seen: list[tuple[str, float | None]] = []
    made = make(context, build_args=("COLOUR=blue",))
    assert (made.systemd, made.command, made.workdir) == (
        False,
        ("sh", "-c", "echo $GREETING"),
        "/app",
    )
    assert dict(made.env)["GREETING"] == "hello"
    tree = unpack(made.path, tmp_path / "tree")
    assert (tree / "etc/colour").read_text() == "blue\n"
    assert list((tree / "dev").iterdir()) == []
    again = build(
        context, tmp_path / "again", progress=lambda what, done: seen.append((what, done))
    )
    assert again.digest != made.digest, "another argument, another content"
    assert [what for what, _ in seen if "RUN" in what] and seen[-1][0] == "computing the digest"
    assert {
        round(done, 2) for what, done in seen if what.startswith("step") and done is not None
    } >= {0.0, 0.29}


def test_the_same_input_gives_the_same_digest(context: Path, make: Build) -> None:
    first = make(context, "first")
    moved = shutil.copytree(context, context.parent / "elsewhere", symlinks=True)
    now = time.time() + 1000
    for path in (moved / "root").rglob("*"):
        os.utime(path, (now, now), follow_symlinks=False)
    second = make(moved, "second")
    assert second.digest == first.digest
    assert second.path.read_bytes() == first.path.read_bytes()
    (moved / "root/etc").mkdir()
    (moved / "root/etc/more").write_text("x")
    assert make(moved, "third").digest != first.digest


def test_archives_and_layouts_give_what_the_dockerfile_gave(
    context: Path, make: Build, tmp_path: Path
) -> None:
    layout, base = tmp_path / "layout", tmp_path / "base.tar"
    root = busybox_tree(tmp_path / "r")
    for command in (["init", "--layout"], ["new", "--image"]):
        tool("umoci", *command, f"{layout}{':a' if command[0] == 'new' else ''}")
    tool("umoci", "insert", "--image", f"{layout}:a", str(root / "bin"), "/bin")
    tool(
        "umoci",
        "config",
        "--image",
        f"{layout}:a",
        "--config.cmd",
        "/bin/sh",
        "--config.workingdir",
        "/bin",
    )
    tool("skopeo", "--insecure-policy", "copy", f"oci:{layout}:a", f"oci-archive:{base}:a")
    tool(
        "skopeo",
        "--insecure-policy",
        "copy",
        f"oci:{layout}:a",
        f"docker-archive:{tmp_path / 'docker.tar'}:a:1",
    )
    found = [
        make(path, path.name + ".squashfs") for path in (layout, base, tmp_path / "docker.tar")
    ]
    assert len({made.digest for made in found}) == 1
    assert {(made.command, made.workdir) for made in found} == {(("/bin/sh",), "/bin")}
    shutil.copy(base, context)
    (context / "Dockerfile").write_text(
        'FROM oci-archive:base.tar\nRUN ["/bin/sh", "-c", "echo 1 > /one"]\n'
    )
    made = make(context, "derived")
    assert made.command == ("/bin/sh",)
    assert (unpack(made.path, tmp_path / "tree") / "one").read_text() == "1\n"


def test_trees_and_tar_files_give_the_same_image(make: Build, tmp_path: Path) -> None:
    tree = busybox_tree(tmp_path / "tree")
    os.chown(tree / "bin/busybox", 12, 34)
    tool("tar", "-cf", str(tmp_path / "root.tar"), "-C", str(tree), ".")
    one = make(tree, "one", command=("sh",))
    two = make(tmp_path / "root.tar", "two", command=("sh",))
    assert one.digest == two.digest
    info = (unpack(one.path, tmp_path / "x") / "bin/busybox").stat()
    assert (info.st_uid, info.st_gid, info.st_mtime) == (12, 34, 0)


def test_file_capabilities_are_kept_and_other_attributes_are_not(
    make: Build, tmp_path: Path
) -> None:
    tree = busybox_tree(tmp_path / "tree")
    os.setxattr(tree / "bin/busybox", "security.capability", CAPABILITY)
    tool(
        "tar",
        "-cf",
        str(tmp_path / "root.tar"),
        "--xattrs",
        "--xattrs-include=*",
        "-C",
        str(tree),
        ".",
    )
    for source in (tree, tmp_path / "root.tar"):
        made = make(source, f"{source.name}.squashfs", command=("sh",))
        found = unpack(made.path, tmp_path / f"x-{source.name}") / "bin/busybox"
        assert os.getxattr(found, "security.capability") == CAPABILITY
    os.setxattr(tree / "bin", "user.note", b"mine")
    mixed = make(tree, "mixed", command=("sh",))
    assert mixed.digest == make(tmp_path / "root.tar", "same", command=("sh",)).digest
    assert mixed.notes == ("the extended attribute user.note of 1 file is left out, as of /bin",)
    assert os.getxattr(tree / "bin", "user.note") == b"mine", "a person's directory stays"


@pytest.mark.parametrize("capability", [True, False])
def test_a_tree_and_a_tar_with_acls_are_built_alike_and_say_what_is_left_out(
    make: Build, tmp_path: Path, *, capability: bool
) -> None:
    tree = busybox_tree(tmp_path / "tree")
    if capability:
        os.setxattr(tree / "bin/busybox", "security.capability", CAPABILITY)
    os.setxattr(tree / "bin", "system.posix_acl_access", ACL)
    os.setxattr(tree / "bin/busybox", "user.note", b"mine")
    made = ["-cf", str(tmp_path / "root.tar"), "--acls", "--xattrs", "--xattrs-include=*"]
    tool("tar", *made, "-C", str(tree), ".")
    by_tree = make(tree, "one", command=("sh",))
    by_tar = make(tmp_path / "root.tar", "two", command=("sh",))
    assert by_tree.digest == by_tar.digest
    assert by_tree.notes == by_tar.notes
    assert "ACL (system.posix_acl_access) of 1 file is left out, as of /bin" in by_tar.notes[0]
    assert "user.note of 1 file is left out, as of /bin/busybox" in by_tar.notes[1]


def test_all_device_nodes_are_named_and_whiteouts_are_kept(make: Build, tmp_path: Path) -> None:
    tree = busybox_tree(tmp_path / "tree")
    (tree / "etc").mkdir(exist_ok=True)
    os.mknod(tree / "etc/gone", 0o600 | stat.S_IFCHR, os.makedev(0, 0))
    made = make(tree, "one", command=("sh",))
    found = (unpack(made.path, tmp_path / "x") / "etc/gone").lstat()
    assert (stat.S_ISCHR(found.st_mode), found.st_rdev) == (True, 0)
    os.mknod(tree / "etc/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1))
    os.mknod(tree / "bin/disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    with pytest.raises(InputError, match="/bin/disk, /etc/mem are device nodes"):
        make(tree, "two", command=("sh",))


FAILING = {
    "a failing step": (
        'RUN ["/bin/sh", "-c", "echo no such luck; exit 3"]',
        "exit status 3",
        "no such luck",
    ),
    "a missing file": ("COPY nothing /", "no such file", ""),
    "an unknown instruction": ("BOGUS x", "Unknown instruction", ""),
    "a program that is not there": (
        'CMD ["/usr/bin/missing"]',
        "no program '/usr/bin/missing'",
        "CMD",
    ),
    "nothing to run": ("LABEL a=b", "nothing says what the image runs", "--command"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_dockerfile_that_fails_says_why_and_leaves_nothing(
    context: Path, make: Build, name: str
) -> None:
    lines, message, hint = FAILING[name]
    (context / "Dockerfile").write_text(f"FROM scratch\nCOPY root/ /\n{lines}\n")
    mounts = set(mount_points())
    with pytest.raises(LayercakeError) as caught:
        make(context)
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.message.startswith("cannot ")
    assert not [point for point in set(mount_points()) - mounts if ".image-build-" in point]


def add(
    archive: tarfile.TarFile,
    name: str,
    kind: bytes = tarfile.REGTYPE,
    data: bytes = b"x",
    link: str = "",
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, 0o755
    member.size = len(data) if kind == tarfile.REGTYPE else 0
    archive.addfile(member, io.BytesIO(data))


BLOCK, LINK = tarfile.BLKTYPE, tarfile.SYMTYPE
HOSTILE: dict[str, tuple[list[tuple[str, bytes, str]], str]] = {
    "an archive that climbs out": (
        [("oci-layout", b"", ""), ("../../evil", b"", "")],
        "has no place in an OCI archive",
    ),
    "an archive with a device": (
        [("oci-layout", b"", ""), ("blobs", BLOCK, "")],
        "has no place in an OCI archive",
    ),
    "an archive with a link": (
        [("oci-layout", b"", ""), ("blobs", LINK, "/")],
        "has no place in an OCI archive",
    ),
    "a docker archive that links outside": (
        [("manifest.json", b"", ""), ("l", LINK, "/etc/shadow")],
        "has no place in a Docker",
    ),
    "a root that climbs out": ([("bin/sh", b"", ""), ("../../evil", b"", "")], r"\.\."),
    "a root with a device": (
        [("bin/sh", b"", ""), ("etc/disk", BLOCK, "")],
        "/etc/disk is a device node",
    ),
    "a name with a line break": (
        [("bin/sh", b"", ""), ("etc/a\nb", b"", "")],
        "control characters",
    ),
    "nothing that we know": (
        [("readme.txt", b"", "")],
        "neither an OCI archive nor a root file system",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(make: Build, tmp_path: Path, name: str) -> None:
    members, message = HOSTILE[name]
    path = tmp_path / "hostile.tar"
    with tarfile.open(path, "w") as archive:
        for path_inside, kind, link in members:
            add(archive, path_inside, kind or tarfile.REGTYPE, link=link)
    with pytest.raises(LayercakeError, match=message):
        make(path, command=("/bin/sh",))
    assert not list(tmp_path.rglob("evil"))


def test_a_layer_cannot_climb_out(make: Build, tmp_path: Path) -> None:
    layer, layout = tmp_path / "layer.tar", tmp_path / "layout"
    with tarfile.open(layer, "w") as archive:
        add(archive, "bin/sh")
        add(archive, "up", tarfile.SYMTYPE, link="../../../..")
        add(archive, "up/evil")
        add(archive, "../../../evil2")
    tool("umoci", "init", "--layout", str(layout))
    tool("umoci", "new", "--image", f"{layout}:a")
    tool("umoci", "raw", "add-layer", "--image", f"{layout}:a", str(layer))
    try:
        made: Built | None = make(layout, command=("/bin/sh",))
    except OperationFailed:
        made = None
    kept = unpack(made.path, tmp_path / "x") if made else None
    assert [p for p in tmp_path.rglob("evil*") if kept is None or not p.is_relative_to(kept)] == []
    assert not Path("/evil").exists() and not Path("/evil2").exists()


def test_what_is_no_source_is_refused(make: Build, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "cut.tar").write_bytes(
        b"".join((b"bin/sh".ljust(257, b"\0"), b"ustar\x0000", b"\0" * 300))
    )
    (tmp_path / "empty").mkdir()
    for name in ("text", "cut.tar", "empty", "missing"):
        with pytest.raises(InputError, match="cannot build"):
            make(tmp_path / name)


def test_the_shell_form_needs_a_shell(context: Path, make: Build) -> None:
    (context / "Dockerfile").write_text(
        DOCKERFILE.replace('CMD ["sh", "-c", "echo $GREETING"]', "CMD echo $GREETING")
    )
    assert make(context).command == ("/bin/sh", "-c", "echo $GREETING")
