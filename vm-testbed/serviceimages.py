"""Three Debian images that do something: a web server and an SSH server under systemd, and a Slurm
compute node without it.

They are what a site's own Dockerfiles would make, in the form that tests and the demo can have
without a registry."""

from __future__ import annotations

import shutil
from pathlib import Path

from smallimages import PACKAGES, debian_base, prepare_systemd, unpacked, write

from imageapi.build.squash import squash

WEB_PACKAGES = (*PACKAGES, "lighttpd")
SSH_PACKAGES = (*PACKAGES, "openssh-server")
CLOUD_PACKAGES = ("cloud-init", "openssh-server")
SLURM_PACKAGES = ("slurmd", "munge")
SLURM_SCRIPTS = Path(__file__).resolve().parents[1] / "imageapi/slurm"
"""The prolog and epilog, `layercake-busy` as it is inside a container, and the image's init."""

BUSY_DIRECTORY = "/run/layercake/busy.d"
"""On the node; a container that shall be able to say that the node is BUSY has it mounted at the
same place."""


def build_web_image(
    out: Path, cache: Path, *, version: str = "v1", suite: str = "bookworm"
) -> Path:
    """Debian with systemd and lighttpd, which answers `version` on port 80. Must run as root.
    Raises OperationFailed."""
    with unpacked(debian_base(cache, "web", WEB_PACKAGES, suite)) as tree:
        prepare_systemd(tree, version)
        shutil.rmtree(tree / "var/www/html", ignore_errors=True)
        write(tree / "var/www/html/index.html", f"{version}\n")
        # The package's own configuration asks for a log directory, which is part of what was left
        # out.
        write(tree / "etc/tmpfiles.d/web.conf", "d /var/log/lighttpd 0750 www-data www-data\n")
        return squash(tree, out)


def build_ssh_image(
    out: Path, cache: Path, *, version: str = "v1", suite: str = "bookworm"
) -> Path:
    """Debian with systemd and sshd, which has no host keys of its own: those are the node's. Must
    run as root. Raises OperationFailed."""
    with unpacked(debian_base(cache, "ssh", SSH_PACKAGES, suite)) as tree:
        prepare_systemd(tree, version)
        for key in (tree / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        return squash(tree, out)


def build_slurm_image(
    out: Path,
    cache: Path,
    *,
    version: str = "v1",
    munge_key: bytes | None = None,
    suite: str = "bookworm",
) -> Path:
    """Debian with slurmd and munge. Must run as root. Raises OperationFailed.

    `munge_key` becomes part of the image: for tests. A site mounts its own at /etc/munge/munge.key
    instead, because whoever can fetch an image can read it."""
    with unpacked(debian_base(cache, "slurm", SLURM_PACKAGES, suite)) as tree:
        for name in ("prolog", "epilog", "layercake-busy"):
            write(tree / "usr/lib/layercake" / name, (SLURM_SCRIPTS / name).read_text(), 0o755)
        write(tree / "init", (SLURM_SCRIPTS / "init").read_text(), 0o755)
        write(tree / "etc/layercake-image", f"{version}\n")
        (tree / "etc/munge/munge.key").unlink(
            missing_ok=True
        )  # Debian's package makes one while it is installed
        if munge_key is not None:
            key = tree / "etc/munge/munge.key"
            key.write_bytes(munge_key)
            key.chmod(0o400)
            owner = (tree / "etc/munge").stat()
            shutil.chown(key, owner.st_uid, owner.st_gid)
        return squash(tree, out)


def slurm_container(server: str) -> dict[str, object]:
    """How the Slurm image is run under the slurmctld at `server` (HOST or HOST:PORT): slurmd
    fetches its configuration there.

    slurm.conf needs SlurmctldParameters=enable_configless, PrologFlags=Alloc and the scripts in
    /usr/lib/layercake as Prolog and Epilog; cgroup.conf beside it CgroupPlugin=cgroup/v2 and
    IgnoreSystemd=yes, because there is no systemd in the image."""
    return {
        "systemd": False,
        "command": ["/init"],
        "env": {"SLURM_SERVER": server},
        "stop_timeout_s": 20.0,
        "capabilities": ["SYS_NICE"],  # a job's processes are placed on processors
        "mounts": [{"kind": "bind", "source": BUSY_DIRECTORY, "target": BUSY_DIRECTORY}],
    }
