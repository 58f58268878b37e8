"""The distribution's packages of another architecture.

apt fetches them by a configuration of their own directory: this machine's architectures, lists,
packages and hooks have no part in it. Where packages come from, and by which keys they are checked,
is as on this machine.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed
from minos.build import kernel

NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What Debian calls the architectures."""

_LISTS_S = 86400.0
"""How old the lists of packages may be, in seconds."""

_HOOKS = (
    "APT::Update::Pre-Invoke",
    "APT::Update::Post-Invoke",
    "APT::Update::Post-Invoke-Success",
    "DPkg::Pre-Invoke",
    "DPkg::Pre-Install-Pkgs",
    "DPkg::Post-Invoke",
)
_MERGED = ("bin", "sbin", "lib")
"""Directories that are links to those below /usr, as on every Debian since 12."""


def name(architecture: str) -> str:
    """What Debian calls an architecture. Raises InputError."""
    if architecture not in NAMES:
        raise InputError(
            f"cannot build for architecture {architecture[:32]!r}",
            hint=f"choose one of {', '.join(NAMES)}",
        )
    return NAMES[architecture]


def place(architecture: str, cache: Path) -> Path:
    """Where packages of an architecture are kept: a package may have the same name and version in
    two. Raises InputError."""
    return cache if architecture == platform.machine() else place_apart(architecture, cache)


def place_apart(architecture: str, cache: Path) -> Path:
    """Where packages of an architecture are kept with all that they depend on. Raises
    InputError."""
    return cache / f"apt-{name(architecture)}"


def _configuration(directory: Path, debian: str) -> str:
    """apt.conf(5). It is read after this machine's own."""
    clear = "".join(f"#clear {key};\n" for key in ("APT::Architectures", *_HOOKS))
    return (
        clear
        + f"""APT::Architecture "{debian}";
APT::Architectures {{ "{debian}"; }};
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Dir::State "{directory}/state/";
Dir::State::status "{directory}/status";
Dir::Cache "{directory}/";
Dir::Cache::archives "archives/";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Log "{directory}/log/";
"""
    )


def options(
    architecture: str, cache: Path, say: Callable[[str], None] = lambda text: None
) -> tuple[str, ...]:
    """apt's options for packages of an architecture; none for this machine's own. Raises as
    `apart`."""
    return () if architecture == platform.machine() else apart(architecture, cache, say)


def apart(
    architecture: str, cache: Path, say: Callable[[str], None] = lambda text: None
) -> tuple[str, ...]:
    """apt's options for packages of an architecture, whatever this machine has installed of them.
    The lists are fetched once a day; where they cannot be, those from before do. Raises InputError,
    OperationFailed."""
    debian = name(architecture)
    directory = place_apart(architecture, cache).absolute()
    if re.search(r'["\s;{}]', str(directory)):
        raise InputError(
            f"cannot keep packages in {directory}: apt takes no path with blanks, quotes or "
            "brackets"
        )
    for part in ("state/lists/partial", "archives/partial", "log"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    (directory / "status").touch()
    file = directory / "apt.conf"
    stamp = directory / "updated"
    file.write_text(_configuration(directory, debian))
    arguments = ("-c", str(file))
    if not stamp.exists() or abs(time.time() - stamp.stat().st_mtime) > _LISTS_S:
        say(f"lists of packages for {debian}")
        try:
            kernel.run("apt-get", *arguments, "-q", "update")
        except OperationFailed as error:
            if not stamp.exists():
                raise
            say(f"{error.message}; the lists from before are used")
        else:
            stamp.touch()
    return arguments


def root(packages: Iterable[str], architecture: str, cache: Path, apt: Sequence[str]) -> Path:
    """A tree with the files of these packages and all that they depend on, unpacked once; `apt`: as
    `apart` gives them. Raises InputError, OperationFailed."""
    wanted = sorted(packages)
    directory = place_apart(architecture, cache)
    unpacked = install_set(wanted, directory, apt)
    if not unpacked:
        raise OperationFailed(
            f"cannot fetch {', '.join(wanted)} for {architecture}: apt would install nothing"
        )
    archives = [directory / "archives" / file for file in sorted(unpacked)]
    if not all(file.is_file() for file in archives):
        kernel.run("apt-get", *apt, "-q", "-y", "--download-only", "install", *wanted)
    tree = (
        directory
        / f"root-{hashlib.blake2b(''.join(sorted(unpacked)).encode(), digest_size=8).hexdigest()}"
    )
    if not tree.exists():
        partial = tree.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for link in _MERGED:
            (partial / "usr" / link).mkdir(parents=True)
            (partial / link).symlink_to(f"usr/{link}")
        for file in archives:
            _unpack(file, partial)
        partial.rename(tree)
    return tree


def install_set(wanted: Sequence[str], directory: Path, apt: Sequence[str]) -> list[str]:
    """The archives that apt would install for these packages. It takes seconds to work that out, so
    the answer is kept until the lists of packages are fetched anew."""
    stamp = directory / "updated"
    lists = stamp.stat().st_mtime_ns if stamp.exists() else 0
    key = hashlib.blake2b(f"{' '.join(wanted)} {lists}".encode(), digest_size=8).hexdigest()
    plan = directory / f"plan-{key}"
    if lists and plan.exists():
        return plan.read_text().split()
    text = kernel.run("apt-get", *apt, "-s", "install", *wanted)
    files = [
        f"{package}_{version.replace(':', '%3a')}_{kind}.deb"
        for package, version, kind in re.findall(
            r"^Inst (\S+?)(?::\S+)? \((\S+) [^\n]*\[(\S+)\]\)", text, re.MULTILINE
        )
    ]
    for old in directory.glob("plan-*"):
        if old.stat().st_mtime_ns < lists:
            old.unlink(missing_ok=True)
    write_atomic(plan, "\n".join(files).encode())
    return files


def program(tree: Path, name: str, package: str) -> Path:
    """A program's file in such a tree. Raises OperationFailed."""
    file = next(
        (path for place in ("usr/bin", "usr/sbin") if (path := tree / place / name).is_file()), None
    )
    if file is None:
        raise OperationFailed(f"cannot build minOS: package {package} has no {name}")
    return file


def _unpack(archive: Path, tree: Path) -> None:
    """Adds the files of a package; links that stand for directories stay. (`dpkg-deb -x` would put
    directories in their place.)"""
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packed:
        done = subprocess.run(
            ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(tree)],
            stdin=packed.stdout,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if packed.returncode or done.returncode:
        last = (done.stderr.strip().splitlines() or ["it is damaged"])[-1]
        raise OperationFailed(
            f"cannot unpack {archive}: {last}", hint=f"remove {archive}, and build again"
        )
