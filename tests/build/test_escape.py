"""What a Dockerfile runs tries to get at the head: out of its chroot, through /proc, by device
nodes, over loopback, by signals.

Each try worked while builds ran as the head's root: they read the head's admin token.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from imageapi.build import sandbox
from imageapi.build.build import Built
from layercake.kraken.errors import OperationFailed
from tests.build.conftest import Build, busybox_tree, unpack

pytestmark = pytest.mark.root

ESCAPE = r"""
open(my $out, '>', '/result'); $| = 1; select((select($out), $| = 1)[0]);
sub report { my ($name, $worked) = @_; print $out "$name ", ($worked ? 'worked' : 'refused'), "\n" }
sub readable { my $found = open(my $file, '<', $_[0]) && defined(readline($file)); return $found }
sub names { opendir(my $directory, $_[0]); return sort grep { !/^\./ } readdir($directory) }
my ($secret, $port, $victim, $disk) = @ARGV;
report('process', kill(9, $victim));
system("/bin/busybox timeout 3 /bin/busybox nc 127.0.0.1 $port </dev/null >/dev/null 2>&1");
report('node', system("/bin/busybox mknod /disk b $disk 2>/dev/null") == 0 && readable('/disk'));
report('proc', grep { readable("$_/root$secret") } map { "/proc/$_" } 1..999);
report('cwd', grep { readable("$_/cwd$secret") } map { "/proc/$_" } 1..999);
report('core', open(my $core, '>', '/proc/sys/kernel/core_pattern'));
report('trigger', open(my $trigger, '>', '/proc/sysrq-trigger'));
mkdir '/x'; chroot '/x'; chdir '..' for 1..64; chroot '.';  # the working directory stays outside of the new root
print $out 'names ', join(' ', names('/')), "\n";
report('secret', readable($secret));
report('shadow', readable('/etc/shadow'));
report('program', open(my $program, '>', '/usr/bin/evil'));
report('memory', readable('/dev/mem'));
report('link', system("/usr/bin/ip link set lo mtu 1400 2>/dev/null; test \"\$(cat /sys/class/net/eth0/mtu 2>/dev/null)\"") == 0);
"""


def copy_with_libraries(program: str, root: Path) -> None:
    """A program of this machine and what it is linked with, at the same places below a root."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in (program, *re.findall(r"(/\S+) \(0x", listed)):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def nobody_came(head: socket.socket) -> None:
    head.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        head.accept()


def test_a_step_that_leaves_its_chroot_finds_nothing_of_the_head(
    tmp_path: Path, make: Build
) -> None:
    secret = tmp_path / "admin.token"
    secret.write_text("the head's\n")
    secret.chmod(0o644)
    context = tmp_path / "context"
    copy_with_libraries("/usr/bin/perl", busybox_tree(context / "root"))
    (context / "root/escape").write_text(ESCAPE)
    disk = Path("/").stat().st_dev
    with (
        socket.create_server(("127.0.0.1", 0)) as head,
        subprocess.Popen(["sleep", "300"]) as victim,
    ):
        try:
            words = [
                "/usr/bin/perl",
                "/escape",
                str(secret),
                str(head.getsockname()[1]),
                str(victim.pid),
                f"{os.major(disk)} {os.minor(disk)}",
            ]
            (context / "Dockerfile").write_text(
                f'FROM scratch\nCOPY root/ /\nRUN {words!r}\nCMD ["sh"]\n'.replace("'", '"')
            )
            made = make(context)
            assert victim.poll() is None
            nobody_came(head)
        finally:
            victim.kill()
    found = (unpack(made.path, tmp_path / "tree") / "result").read_text().splitlines()
    answers = dict(line.split(" ", 1) for line in found)
    names = answers.pop("names").split()
    assert "scratch" in names, "it did leave its chroot"
    assert not {"root.", "home", "opt", "srv", "boot", "run"} & set(names)
    assert len(answers) == 11 and set(answers.values()) == {"refused"}, answers


def test_the_image_has_the_owners_that_the_dockerfile_gave(
    context: Path, make: Build, tmp_path: Path
) -> None:
    lines = (
        'RUN ["/bin/busybox", "chown", "33:65534", "/etc/colour"]\nRUN ["/bin/busybox", '
        '"chmod", "4755", "/bin/busybox"]\n'
    )
    (context / "Dockerfile").write_text((context / "Dockerfile").read_text() + lines)
    tree = unpack(make(context).path, tmp_path / "tree")
    info = (tree / "etc/colour").stat()
    assert (info.st_uid, info.st_gid) == (33, 65534)
    assert (
        (tree / "bin/busybox").stat().st_mode & 0o7777,
        (tree / "bin/busybox").stat().st_uid,
    ) == (0o4755, 0)


def test_the_context_is_copied_as_it_is_and_links_lead_nowhere(tmp_path: Path, make: Build) -> None:
    context, secret = tmp_path / "context", tmp_path / "secret"
    secret.write_text("the head's\n")
    (busybox_tree(context / "root") / "only-root").write_text("mine\n")
    (context / "root/only-root").chmod(0o600)
    (context / "stolen").symlink_to(secret)
    (context / "Dockerfile").write_text(
        'FROM scratch\nCOPY root/ /\nRUN ["/bin/cat", "/only-root"]\nCMD ["sh"]\n'
    )
    assert (unpack(make(context).path, tmp_path / "tree") / "only-root").read_text() == "mine\n"
    (context / "Dockerfile").write_text('FROM scratch\nCOPY root/ /\nCOPY stolen /\nCMD ["sh"]\n')
    with pytest.raises(OperationFailed):
        make(context, "second")


@pytest.mark.parametrize("limit", ["0\n", None])
def test_without_user_namespaces_nothing_is_built(
    context: Path, make: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None
) -> None:
    kernel = tmp_path / "max_user_namespaces"
    if limit is not None:
        kernel.write_text(limit)
    monkeypatch.setattr(sandbox, "NAMESPACES", kernel)
    with pytest.raises(OperationFailed, match="gives out no user namespaces") as refused:
        make(context)
    assert "sysctl" in refused.value.hint


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "other", "none"])
def test_a_result_that_is_no_file_of_the_build_is_refused(tmp_path: Path, kind: str) -> None:
    tmp_path.chmod(0o755)
    made = sandbox.Sandbox(tmp_path / "box", network=False)
    path = made.scratch / "image.tar"
    if kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "other":
        path.write_text("of the head's root")
    with pytest.raises(OperationFailed, match="cannot use what the build has made"):
        made.result("image.tar")


def test_a_network_is_had_by_asking_and_does_not_reach_the_heads_loopback(
    context: Path, make: Build, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        tell = (
            "busybox ip -o addr; "
            f"for a in 127.0.0.1 10.0.2.2; do busybox timeout 3 busybox nc $a {port} </dev/null && "
            "echo reached; done; true"
        )
        text = (
            f'FROM scratch\nCOPY root/ /\nRUN ["/bin/sh", "-c", "({tell}) > /said 2>&1"]\nCMD '
            '["sh"]\n'
        )
        (context / "Dockerfile").write_text(text)

        def said(name: str, **options: bool) -> str:
            made: Built = make(context, name, **options)
            return (unpack(made.path, tmp_path / f"tree-{name}") / "said").read_text()

        alone, out = said("alone"), said("out", network=True)
        assert "tap0" not in alone and "reached" not in alone
        assert "inet 10.0.2.100/24" in out and "reached" not in out
        nobody_came(head)
