"""Two small system images, for the demo, the tests, and as an example of what an image needs.

The plain one is a single static program and a script; the systemd one is a minimal Debian whose
first service says on the console that the system is up, and which version of the image it is."""

from __future__ import annotations

import fcntl
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from imageapi.build.squash import squash
from imageapi.build.tools import run
from layercake.kraken.errors import OperationFailed

PLAIN_INIT = """#!/bin/sh
# PID 1: says what it is, then a line each second; ends at once when it is asked to.
trap 'echo "@MARKER@ ends"; exit 0' TERM
echo "@MARKER@ starts"
n=0
while :; do
    n=$((n + 1))
    echo "@MARKER@ line $n"
    sleep 1 &
    wait $!
done
"""

REPORT_UNIT = """[Unit]
Description=Says on the console that the system is up
After=multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/layercake/report
"""

REPORT = """#!/bin/sh
read -r uptime rest < /proc/uptime
read -r name < /proc/sys/kernel/hostname
text="LAYERCAKE-IMAGE version=@MARKER@ multi-user reached on $name, uptime $uptime s"
echo "$text"
[ -w /dev/console ] && echo "$text" > /dev/console
exit 0
"""

JOURNALD = """[Journal]
Storage=volatile
RuntimeMaxUse=8M
"""

NOT_NEEDED = (
    "usr/share/man",
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/zoneinfo",
    "usr/share/bash-completion",
    "usr/lib/x86_64-linux-gnu/gconv",
    "var/lib/apt/lists",
    "var/cache/apt",
    "var/log",
)
MASKED = (
    "console-getty.service",
    "getty.target",
    "systemd-logind.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-firstboot.service",
    "systemd-udev-trigger.service",
    "systemd-remount-fs.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "dev-hugepages.mount",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "modprobe@.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "systemd-pstore.service",
    "systemd-sysusers.service",
    "e2scrub_reap.service",
    "systemd-boot-system-token.service",
)
PACKAGES = ("systemd", "systemd-sysv", "dbus")
ALONE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
"""In namespaces of its own for mounts and processes, and dead when its parent is."""
PAUSES_S = (3.0, 10.0, 30.0)
"""Before each further try at a mirror."""


def build_plain_image(out: Path, marker: str, *, script: str = PLAIN_INIT) -> Path:
    """An image of busybox and one script, about 1 MB. `marker` is in every line that it prints.
    Raises OperationFailed."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise OperationFailed(
            "cannot build the plain image: busybox is not installed",
            hint="apt-get install busybox-static",
        )
    with tempfile.TemporaryDirectory(prefix="image-") as scratch:
        tree = Path(scratch) / "tree"
        for directory in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var"):
            (tree / directory).mkdir(parents=True)
        (tree / "tmp").chmod(0o1777)
        shutil.copy(busybox, tree / "bin/busybox")
        for applet in (
            "sh",
            "cat",
            "echo",
            "sleep",
            "ps",
            "kill",
            "ls",
            "true",
            "false",
            "hostname",
            "mount",
        ):
            (tree / "bin" / applet).symlink_to("busybox")
        write(tree / "init", script.replace("@MARKER@", marker), 0o755)
        return squash(tree, out)


def build_systemd_image(
    out: Path, cache: Path, *, version: str = "v1", suite: str = "bookworm"
) -> Path:
    """A minimal Debian with systemd. Must run as root; the base is made once and kept in the cache.
    Raises OperationFailed."""
    with unpacked(debian_base(cache, "systemd", PACKAGES, suite)) as tree:
        prepare_systemd(tree, version)
        return squash(tree, out)


def prepare_systemd(tree: Path, version: str) -> None:
    """Makes a Debian with systemd fit for a container: no consoles, no hardware, a journal in
    memory, and a report at its end."""
    units = tree / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    write(units / "layercake-report.service", REPORT_UNIT)
    wants = units / "graphical.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "layercake-report.service").symlink_to("../layercake-report.service")
    write(tree / "usr/lib/layercake/report", REPORT.replace("@MARKER@", version), 0o755)
    write(tree / "etc/systemd/journald.conf.d/layercake.conf", JOURNALD)
    write(tree / "etc/layercake-image", f"{version}\n")
    write(tree / "etc/machine-id", "")


@contextmanager
def unpacked(base: Path) -> Iterator[Path]:
    """A base's files without what no image needs, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="image-") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir(mode=0o755)
        run(
            ["tar", "-xpf", str(base), "-C", str(tree), "--numeric-owner"],
            "unpack the image's base",
            "tar",
        )
        for name in NOT_NEEDED:
            shutil.rmtree(tree / name, ignore_errors=True)
        (tree / "var/log").mkdir(mode=0o755)
        (tree / "etc/hostname").unlink(missing_ok=True)  # the node's name is the container's
        write(tree / "etc/resolv.conf", "")
        yield tree


def debian_base(cache: Path, name: str, packages: Sequence[str], suite: str) -> Path:
    """Debian's essential packages and some more, untouched, as a tar file; made once. Whoever asks
    for one that another process is making waits for it. Raises OperationFailed."""
    cache.mkdir(parents=True, exist_ok=True)
    base = cache / f"{name}-{suite}.tar"
    if base.exists():
        return base
    with (cache / f"{base.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.exists():
            _bootstrap(base, name, packages, suite)
    return base


def _bootstrap(base: Path, name: str, packages: Sequence[str], suite: str) -> None:
    """Makes a base; a mirror that fails is asked again. mmdebstrap is alone with its mounts and
    processes, so that nothing of it is left when it is killed; its files are in a directory that
    the next run clears."""
    partial = base.with_name(f"partial-{base.name}")
    scratch = base.with_name(f"partial-{base.name}.d")
    excludes = [f"--dpkgopt=path-exclude=/{path}/*" for path in NOT_NEEDED[:5]]
    command = [
        *ALONE,
        "mmdebstrap",
        "--quiet",
        "--variant=essential",
        f"--include={','.join(packages)}",
        *excludes,
        suite,
        str(partial),
    ]
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SOURCE_DATE_EPOCH": "0",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(scratch),
    }
    for pause in (*PAUSES_S, None):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            run(command, f"build the {name} image", "mmdebstrap", env=environment)
        except OperationFailed:
            if pause is None:
                raise
            time.sleep(pause)
        else:
            partial.replace(base)
            return
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Puts a file into a tree, in the place of whatever was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":  # by the system's own Python, before there is a virtual environment
    try:
        debian_base(Path(sys.argv[1]), "systemd", PACKAGES, "bookworm")
    except OperationFailed as failure:
        sys.exit(f"{failure.message}\n{failure.hint or ''}")
