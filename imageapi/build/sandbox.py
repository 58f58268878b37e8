"""A box for what a Dockerfile runs: a container by crun in which nothing of the head is, with users
of its own.

    BOX/root       its read-only root file system: /usr of the head and a few names, empty otherwise
    BOX/context    /context: a copy of what the Dockerfile may copy from
    BOX/scratch    /scratch: where it works, and puts its result

buildah runs in it, and what a RUN line escapes from its chroot into is this box. Its root is a user
of the head without rights, in namespaces of its own for users, files, processes, messages, names
and the network. The network is empty unless it is asked for; then slirp4netns carries connections
out of it, but none to the head's own loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from imageapi.build import rootfs
from imageapi.build.tools import LAST, LIMIT_S, PATH, Limits, Line, run
from imageapi.spec.privileges import CAPABILITIES, HIDDEN, READ_ONLY, system_calls
from layercake.kraken.errors import OperationFailed

FIRST_USER = 1 << 30
USERS = 1 << 16
"""The head's users that the box's users 0 to 65535 are: far from those of people and services."""

NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
"""How many the kernel gives out; not there on a kernel that has none."""

_MOST_PROCESSES = 4096
_PLACE = "/mnt"
"""Where the box is seen while it is set up: the box's root may not walk through directories of the
head's root."""

_ALONE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "/bin/sh",
    "-c",
)
"""Mounts of the build vanish with it, and so do its processes, however it ends."""

_RUN = (
    f'mount -t cgroup2 none /sys/fs/cgroup && mount --bind "$1" {_PLACE} && cd {_PLACE} && %s'
    f"crun --root={_PLACE}/state --cgroup-manager=disabled run --bundle={_PLACE} build"
)

_LINK = (
    "rm -f pid ready && mkfifo pid ready && { (pid=$(cat pid); exec slirp4netns --configure "
    "--disable-host-loopback "
    '--ready-fd=3 "$pid" tap0 3> ready < /dev/null > /dev/null) & } && '
)
"""Beside crun, which waits for all of its own children."""

_HOOK = (
    f'sed -n "s/.*\\"pid\\": *\\([0-9]*\\).*/\\1/p" > {_PLACE}/pid; head -c 1 {_PLACE}/ready '
    "> /dev/null"
)
"""An OCI hook: it gets the container's state on its input, and waits until the network is there."""

_FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n",
}
_SHARED = ("/usr", "/etc/containers", "/etc/ssl/certs", "/etc/alternatives")
"""Of the head: programs, which registries there are, and whom TLS trusts. Anybody on the head may
read them."""


class Sandbox:
    """One box, below a directory that is removed afterwards. `network` lets it out, `seconds` is
    how long a program may run in it."""

    def __init__(self, directory: Path, *, network: bool, seconds: float = LIMIT_S) -> None:
        if not NAMESPACES.exists() or not int(NAMESPACES.read_text()):
            raise OperationFailed(
                "cannot build: this kernel gives out no user namespaces, and a build without one "
                "could read the "
                "head's files",
                hint="sysctl user.max_user_namespaces=10000",
            )
        if network and not shutil.which("slirp4netns"):
            raise OperationFailed(
                "cannot build with a network: slirp4netns is not installed",
                hint="apt-get install slirp4netns",
            )
        self._network = network
        self._seconds = seconds
        self._directory = directory
        self._root = directory / "root"
        self._context = directory / "context"
        self.scratch = directory / "scratch"
        directory.mkdir(mode=0o711)
        directory.chmod(0o711)
        for path in (self._root, self._context, self.scratch):
            path.mkdir(mode=0o755)
        os.chown(self.scratch, FIRST_USER, FIRST_USER)
        self._furnish()

    def _furnish(self) -> None:
        """The names in the root file system."""
        for name in (
            "proc",
            "sys",
            "dev",
            "tmp",
            "etc",
            "root",
            "context",
            "scratch",
            "var",
            *(path[1:] for path in _SHARED),
        ):
            (self._root / name).mkdir(parents=True, exist_ok=True)
        for path in Path("/").iterdir():
            if path.name in ("bin", "sbin") or path.name.startswith(
                "lib"
            ):  # Debian's are links into /usr
                (self._root / path.name).symlink_to(path.readlink())
        (self._root / "var/tmp").symlink_to("/scratch")
        for name, text in _FILES.items():
            (self._root / "etc" / name).write_text(text)
        (self._root / "etc/resolv.conf").write_text(
            "nameserver 10.0.2.3\n" if self._network else ""
        )

    def copy_context(self, context: Path) -> None:
        """Copies what the Dockerfile may copy from: the box's root is not who may read it where it
        is. Raises OperationFailed."""
        run(
            ["cp", "-a", "--", f"{context.absolute()}/.", str(self._context)],
            f"copy {context}",
            "coreutils",
            {"PATH": PATH},
        )
        os.chown(self._context, FIRST_USER, FIRST_USER)
        for path, info in rootfs.walk(self._context):
            os.lchown(path, FIRST_USER, FIRST_USER)
            if info.st_mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(info.st_mode):
                path.chmod(stat.S_IMODE(info.st_mode))  # chown(2) takes these bits away

    def run(
        self,
        command: Sequence[str],
        what: str,
        environment: Mapping[str, str],
        line: Line = lambda text: None,
    ) -> None:
        """Runs a program of the head's /usr in the box. Raises OperationFailed."""
        config = _config(command, environment, network=self._network)
        (self._directory / "config.json").write_text(json.dumps(config))
        run(
            [*LAST, *_ALONE, _RUN % (_LINK if self._network else ""), "sh", str(self._directory)],
            what,
            "crun",
            {"PATH": PATH},
            line,
            Limits(self.scratch, self._seconds),
        )

    def result(self, name: str) -> Path:
        """A file that the box has left in /scratch. It may be anything, so it must be a plain file.
        Raises OperationFailed."""
        path = self.scratch / name
        status = path.lstat() if os.path.lexists(path) else None
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_uid != FIRST_USER:
            raise OperationFailed(
                f"cannot use what the build has made: {name} is not a file of the build"
            )
        return path


def _mount(target: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {
        "destination": target,
        "type": kind,
        "source": source or kind,
        "options": ["nosuid", *options],
    }


def _config(
    command: Sequence[str], environment: Mapping[str, str], *, network: bool
) -> dict[str, Any]:
    """The OCI configuration. Every capability is one over the box alone: its user namespace has
    nothing else."""
    own = [f"CAP_{name}" for name in CAPABILITIES]
    users = [{"containerID": 0, "hostID": FIRST_USER, "size": USERS}]
    shared = [
        _mount(path, "none", "rbind", "ro", "nodev", source=path)
        for path in _SHARED
        if Path(path).is_dir()
    ]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "cwd": "/context",
            "args": list(command),
            "noNewPrivileges": False,
            "env": [f"{key}={value}" for key, value in sorted(environment.items())],
            "capabilities": {"bounding": own, "effective": own, "permitted": own},
            "rlimits": [{"type": "RLIMIT_NPROC", "hard": _MOST_PROCESSES, "soft": _MOST_PROCESSES}],
        },
        "root": {"path": f"{_PLACE}/root", "readonly": True},
        "hostname": "build",
        "mounts": [
            _mount("/proc", "proc"),
            _mount("/dev", "tmpfs", "mode=755", "size=1m"),
            _mount(
                "/dev/pts", "devpts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"
            ),
            _mount("/dev/shm", "tmpfs", "nodev", "mode=1777"),  # noqa: S108 (inside the box)
            _mount("/sys", "sysfs", "noexec", "nodev", "ro"),
            _mount("/tmp", "tmpfs", "nodev", "mode=1777"),  # noqa: S108
            *shared,
            _mount("/context", "none", "bind", "ro", "nodev", source=f"{_PLACE}/context"),
            {
                **_mount("/scratch", "none", source=f"{_PLACE}/scratch"),
                "options": ["bind", "rw", "nodev"],
            },
        ],
        "hooks": {
            "createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", _HOOK], "timeout": 30}]
        }
        if network
        else {},
        "linux": {
            "namespaces": [
                {"type": kind}
                for kind in ("user", "mount", "pid", "ipc", "uts", "network", "cgroup")
            ],
            "uidMappings": users,
            "gidMappings": users,
            "seccomp": system_calls(),
            "maskedPaths": list(HIDDEN),
            "readonlyPaths": list(READ_ONLY),
        },
    }
