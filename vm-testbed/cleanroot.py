"""A clean Debian with systemd as its PID 1, in namespaces of its own: what a new head machine is
before Layercake is on it.

The base is made once by mmdebstrap and kept: a minimal system, and beside it, as packages in apt's
cache, all that Layercake's package and minOS's builder fetch. So what is installed in it needs no
network."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patience import patience

from imageapi.build.tools import run
from layercake.debian.control import depends
from layercake.debian.environment import FROM_DEBIAN
from layercake.kraken.errors import OperationFailed
from minos.build import profiles

ROOT = Path(__file__).resolve().parents[1]
SUITES = {"12": "bookworm", "13": "trixie"}
PACKAGES = ("systemd", "systemd-sysv", "dbus", "ca-certificates")
KERNELS = "/var/cache/kernels"
"""Where the kernel package is in the root, for `layercake init --cache`."""
INTERFACE, ADDRESS = "eth0", "10.99.7.1"
START_S = 60.0

_START = """set -e
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts dev/shm run/old
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . run/old
umount -l /run/old
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""
"""In new namespaces for mounts, processes, names, messages and control groups; $0 is the root."""


_GONE = """mount -t cgroup2 cgroup2 "$1" && cd "$1" || exit 1
while [ -d "$2" ] && ! find "$2" -depth -type d -exec rmdir {} +; do sleep 0.1; done
"""


def base(cache: Path, suite: str, more: Sequence[str] = ()) -> Path:
    """The base as a tar file, with `more` packages in apt's cache. Must run as root; needs the
    network the first time, or when what is installed has changed. Raises OperationFailed."""
    cache.mkdir(parents=True, exist_ok=True)
    always, _ = depends((ROOT / "packages.txt").read_text())
    wanted = sorted({*always, *FROM_DEBIAN.values(), *more})
    made = cache / f"clean-{suite}{'-more' if more else ''}.tar"
    listed = made.with_suffix(".txt")
    package = profiles.KNOWN[profiles.VIRTUAL].kernel
    content = " ".join([*PACKAGES, *wanted, package])
    if made.exists() and listed.exists() and listed.read_text() == content:
        return made
    partial = made.with_name(f"partial-{made.name}")
    fetch = (
        'chroot "$1" sh -c "apt-get clean; apt-get -q -y --no-install-recommends '
        f'--download-only install {" ".join(wanted)}"'
    )
    kernel = (
        f'mkdir -p "$1{KERNELS}" && chroot "$1" sh -c \'cd {KERNELS} && apt-get -q -o '
        "APT::Sandbox::User=root download "
        f'$(apt-cache depends {package} | sed -n "s/.*Depends: \\(linux-image-[0-9][^ ]*\\)/\\1/p" '
        "| tail -n 1)'"
    )
    run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            "--skip=cleanup/apt",
            f"--customize-hook={fetch}",
            f"--customize-hook={kernel}",
            suite,
            str(partial),
        ],
        f"make a clean Debian {suite}",
        "mmdebstrap",
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SOURCE_DATE_EPOCH": "0",
            "LC_ALL": "C.UTF-8",
        },
    )
    partial.replace(made)
    listed.write_text(content)
    return made


class CleanRoot:
    """One such machine, in a directory. Its network is the namespace `network`; without one it has
    one interface, INTERFACE, that leads nowhere."""

    def __init__(self, directory: Path, tar: Path, network: str = "") -> None:
        self.directory = directory
        self.root = directory / "root"
        self._tar = tar
        self._name = f"lcr-{secrets.token_hex(3)}"
        self._network = network or self._name
        self._groups = directory / "cgroup"
        self._process: subprocess.Popen[Any] | None = None
        self._init = 0

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True)
        run(
            ["tar", "-xpf", str(self._tar), "-C", str(self.root), "--numeric-owner"],
            "unpack a clean Debian",
            "tar",
        )
        # What a test unpacks need not survive a power cut.
        (self.root / "etc/dpkg/dpkg.cfg.d/fast").write_text("force-unsafe-io\n")
        try:
            if self._network == self._name:
                self._make_network()
            self.boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make_network(self) -> None:
        for words in (
            ("netns", "add", self._name),
            ("-n", self._name, "link", "set", "lo", "up"),
            ("-n", self._name, "link", "add", INTERFACE, "type", "bridge"),
            ("-n", self._name, "addr", "add", f"{ADDRESS}/24", "dev", INTERFACE),
            ("-n", self._name, "link", "set", INTERFACE, "up"),
        ):
            subprocess.run(["ip", *words], check=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.off()
        if self._network == self._name:
            subprocess.run(["ip", "netns", "del", self._name], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    # -- power

    def boot(self) -> None:
        """Starts systemd; returns when it has started what it starts. Raises OperationFailed."""
        self._groups.mkdir(exist_ok=True)
        group = self._groups / self._name
        alone = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--cgroup",
            "--uts",
            "--ipc",
            "--mount",
            "--propagation",
            "private",
        ]
        outer = (
            'mount -t cgroup2 cgroup2 "$1" && mkdir -p "$2" && echo $$ > "$2/cgroup.procs" && '
            'shift 2 && exec "$@"'
        )
        with (self.directory / "boot.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "--",  # a test that is killed leaves no machine behind
                    "nsenter",
                    f"--net=/run/netns/{self._network}",
                    "unshare",
                    "--mount",
                    "--propagation",
                    "private",
                    "sh",
                    "-c",
                    outer,
                    "-",
                    str(self._groups),
                    str(group),
                    *alone,
                    "sh",
                    "-c",
                    _START,
                    str(self.root),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + patience(START_S)
        while time.monotonic() < end:
            self._init = self._init or self._pid()
            state = (
                self.run("systemctl", "is-system-running", check=False).stdout.strip()
                if self._init
                else ""
            )
            if state in ("running", "degraded"):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise OperationFailed(
            "cannot start systemd: "
            f"{(self.directory / 'boot.log').read_text(errors='replace')[-1000:]}"
        )

    def _pid(self) -> int:
        """systemd's pid as it is seen from here; 0 if it is not there yet."""
        waiting = [self._process.pid] if self._process is not None else []
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return pid
                waiting += [
                    int(word)
                    for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                ]
        return 0

    def off(self) -> None:
        """Pulls the plug."""
        process, self._process, self._init = self._process, None, 0
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Its processes are ending, and then its control groups can be removed.
            alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
            subprocess.run(
                [*alone, _GONE, "-", str(self._groups), self._name],
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=START_S,
            )

    # -- what is done in it

    def run(
        self, *command: str, check: bool = True, timeout: float = 300.0, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as root of that machine, with `text` as its input. Raises OperationFailed
        if it must not fail and does."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            "COLUMNS": "120",
        }
        done = subprocess.run(
            ["nsenter", "-a", "-t", str(self._init), "--", *command],
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise OperationFailed(
                f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def put(self, file: Path, directory: str = "root") -> str:
        """Copies a file into it; its path there."""
        shutil.copy(file, self.root / directory)
        return f"/{directory}/{file.name}"

    def apt(self, *words: str) -> str:
        """apt-get, which asks nothing and has no network; what it said. Raises OperationFailed."""
        done = self.run("apt-get", "-q", "-y", "--no-install-recommends", *words)
        return done.stdout + done.stderr

    def limits(self, unit: str, names: Sequence[str]) -> dict[str, str]:
        """Properties of a unit, as systemd has them."""
        said = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).stdout
        return dict(re.findall(r"^(\w+)=(.*)$", said, re.M))
