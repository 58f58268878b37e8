"""The images of the demo, the tests and the benchmarks: built once, then kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import serviceimages
import smallimages
from headrun import CACHE
from serviceimages import build_slurm_image, build_ssh_image, build_web_image
from smallimages import build_plain_image, build_systemd_image

from layercake.kraken.errors import OperationFailed

# Ends at once: what a broken image looks like to a node.
CRASHING_INIT = """#!/bin/sh
echo "@MARKER@ cannot find its configuration"
exit 3
"""


def _cached(name: str, key: str, make: Callable[[Path], object]) -> Path:
    sources = [Path(str(module.__file__)).read_bytes() for module in (smallimages, serviceimages)]
    sources += [path.read_bytes() for path in sorted(serviceimages.SLURM_SCRIPTS.iterdir())]
    digest = hashlib.blake2b(b"".join(sources) + key.encode(), digest_size=6).hexdigest()
    path = CACHE / "images" / f"{name}-{digest}.squashfs"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{name}.lock").open("w") as lock:  # another process may be making it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_name(f"partial-{path.name}")
            make(partial)
            partial.replace(path)
    return path


def systemd_image(version: str) -> Path:
    """A minimal Debian with systemd, about 50 MB."""
    return _cached(
        version, version, lambda out: build_systemd_image(out, CACHE / "images", version=version)
    )


def web_image(version: str) -> Path:
    """A Debian with systemd and a web server, about 40 MB."""
    return _cached(
        version, version, lambda out: build_web_image(out, CACHE / "images", version=version)
    )


def ssh_image(version: str) -> Path:
    """A Debian with systemd and sshd, about 60 MB."""
    return _cached(
        version, version, lambda out: build_ssh_image(out, CACHE / "images", version=version)
    )


def slurm_image(version: str, munge_key: bytes | None) -> Path:
    """A Debian with slurmd and munge, about 30 MB."""
    key = f"{version} {munge_key!r}"
    return _cached(
        version,
        key,
        lambda out: build_slurm_image(out, CACHE / "images", version=version, munge_key=munge_key),
    )


def plain_image(marker: str) -> Path:
    """One static program and a script, about 1 MB; run it with the command /init."""
    return _cached(marker, marker, lambda out: build_plain_image(out, marker))


def crashing_image(marker: str) -> Path:
    """An image whose init exits at once with status 3."""
    return _cached(
        marker,
        marker + CRASHING_INIT,
        lambda out: build_plain_image(out, marker, script=CRASHING_INIT),
    )


def started(scratch: Path, *versions: str) -> subprocess.Popen[str]:
    """A process that builds systemd images and then prints {version: path} as JSON. When it is
    killed, every tool that it runs is gone, whatever it waits for; its files are in `scratch`."""
    return subprocess.Popen(
        [*smallimages.ALONE, sys.executable, __file__, *versions],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
    )


def main(versions: list[str]) -> int:
    """Builds these systemd images side by side; the exit status."""
    with ThreadPoolExecutor(len(versions)) as pool:
        try:
            paths = dict(zip(versions, map(str, pool.map(systemd_image, versions)), strict=True))
        except OperationFailed as error:
            print(
                f"{error.message}; {error.hint}" if error.hint else error.message, file=sys.stderr
            )
            return 1
    print(json.dumps(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
