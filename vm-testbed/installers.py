"""The steps that prepare something: Debian's packages, libraries of Python and Node.js, what is
fetched for tests.

Standard library only, and nothing of the product: what the product's own code prepares runs in the
virtual environment, as `prefetch.py ITEM`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from steps import Shell, Step, StepError

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = ROOT / "build" / "prepare.log"
VENV_LIBVIRT = ROOT / ".venv-libvirt"
CACHE = Path(os.environ.get("LAYERCAKE_CACHE", Path.home() / ".cache" / "layercake"))
SYSTEM_PYTHON = "/usr/bin/python3"
"""Debian's own: nodes run the same version, and Ceph's bindings exist for no other."""
APT = (
    "apt-get",
    "-q",
    "-o",
    "DPkg::Lock::Timeout=300",
    "-o",
    "Acquire::Retries=3",
    "-o",
    "Dpkg::Use-Pty=0",
)
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
}
LISTS = Path("/var/lib/apt/lists/partial")
POLICY = Path("/usr/sbin/policy-rc.d")
"""Asked by Debian's packages before they start a service; see invoke-rc.d(8)."""
_POLICY = """#!/bin/sh
case "$1" in etcd|etcd.service) exit 101 ;; esac
exit 0
"""
_FRESH_S = 600.0
"""How long the lists of packages are new, in seconds after their update."""
_BUSY_S = 300.0
"""How long another apt is waited for, in seconds."""
_NEW_S = 6 * 3600.0
NPM = ("examples/modules/thermal-node", "tests/access/provider", "tests/dashboard")
DASHBOARD = ROOT / "layercake" / "dashboard"
XTERM = DASHBOARD / "web" / "xterm"
INSTANCES = 1024
LOCKS = ("requirements.lock", "requirements-demo.lock", "requirements-dev.lock")
"""Each has all that is in those before it."""
PACKAGES, LIBRARIES = "Debian packages", "Python libraries"
KERNEL, BASE = "the nodes' kernel", "the images' Debian"

# -- Debian's packages


def debian(names: Sequence[str]) -> Step:
    """Installs the packages of these names that are missing."""

    def install(shell: Shell) -> None:
        _wait_for_apt(shell)
        if shell.attempt > 1:  # an earlier run that was interrupted may have left some half done
            shell("dpkg", "--configure", "-a", env=QUIET)
        if shell.attempt > 1 or not LISTS.exists() or _age_s(LISTS) > _FRESH_S:
            shell(*APT, "update", env=QUIET)
        with _not_started():
            shell(
                *APT,
                "-y",
                "--no-install-recommends",
                "-o",
                "Dpkg::Options::=--force-unsafe-io",
                "install",
                *missing(names),
                env=QUIET,
            )

    return Step(PACKAGES, install, 40.0, needed=lambda: bool(missing(names)))


@contextlib.contextmanager
def _not_started() -> Iterator[None]:
    """Has Debian start no etcd as it is installed: tests run members of their own. A machine that
    has a policy for what is started keeps it."""
    mine = not POLICY.exists()
    if mine:
        POLICY.write_text(_POLICY)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if mine:
            POLICY.unlink(missing_ok=True)


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _wait_for_apt(shell: Shell) -> None:
    """A new machine updates itself at its first start: its apt holds the lists, for which apt-get
    does not wait."""
    lock, end = LISTS.parent / "lock", time.monotonic() + _BUSY_S
    while lock.exists() and time.monotonic() < end:
        with lock.open("r+b") as file, contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        shell.detail = "another apt is at work; waiting until it is done"
        time.sleep(1.0)


def missing(names: Sequence[str]) -> list[str]:
    """Those packages that are not installed."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Abbrev}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    there = {line.split()[0] for line in done.stdout.splitlines() if line.split()[1:2] == ["ii"]}
    return sorted({*names} - there)


# -- Python's


def libraries(lock: str) -> Step:
    """The virtual environment, with what a lock file names, by hash, and with this clone."""
    stamp = VENV / f".{lock}"

    def install(shell: Shell) -> None:
        if not (VENV / "bin" / "pip").exists():
            shell(SYSTEM_PYTHON, "-m", "venv", "--system-site-packages", str(VENV))
        pip = [
            str(PYTHON),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-warn-script-location",
        ]
        tools = VENV / "tools.lock"
        tools.write_text(
            entries((ROOT / "requirements-dev.lock").read_text(), ("uv", "setuptools"))
        )
        shell(*pip, "--no-deps", "--require-hashes", "-r", str(tools))
        uv = [str(PYTHON), "-m", "uv", "pip", "install", "-q", "--python", str(PYTHON)]
        wanted = ["--require-hashes", "-r", str(ROOT / lock)]
        try:
            shell(*uv, *wanted, env=index_of_pip())
        except StepError:  # it knows fewer ways to an index than pip, which takes longer
            shell(*pip, "--no-deps", *wanted)
        shell(
            *pip,
            "--no-deps",
            "--no-build-isolation",
            "-e",
            str(ROOT),
            env={"PYTHONWARNINGS": "ignore"},
        )
        stamp.write_text(_key(lock))

    def needed() -> bool:
        return not any(_stamped(VENV / f".{name}", name) for name in LOCKS[LOCKS.index(lock) :])

    return Step(LIBRARIES, install, 20.0, (PACKAGES,), needed)


def _key(lock: str) -> str:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packaged = repr((told["project"], told["tool"]["setuptools"])).encode()
    parts = [(ROOT / lock).read_bytes(), packaged, os.fsencode(ROOT)]
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()


def _stamped(stamp: Path, lock: str) -> bool:
    return PYTHON.exists() and stamp.exists() and stamp.read_text() == _key(lock)


def entries(lock: str, names: Sequence[str]) -> str:
    """Those entries of a lock file that have these names."""
    found = re.findall(r"^[^\s#].*?(?=^[^\s#]|\Z)", lock, re.M | re.S)
    return "".join(entry for entry in found if re.split(r"[=\s;\[]", entry, maxsplit=1)[0] in names)


def index_of_pip() -> dict[str, str]:
    """Where pip takes packages from, as uv is told of it: uv does not read pip's configuration."""
    done = subprocess.run(
        [str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", done.stdout, re.M))
    known = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    return {variable: found[key] for key, variable in known.items() if key in found}


def libvirt_libraries() -> Step:
    """virtualbmc and sushy-emulator, for libvirt's domains, in an environment of their own."""
    stamp, lock = VENV_LIBVIRT / ".done", HERE / "libvirt.lock"

    def install(shell: Shell) -> None:
        shell(SYSTEM_PYTHON, "-m", "venv", "--system-site-packages", str(VENV_LIBVIRT))
        shell(
            str(VENV_LIBVIRT / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "-r",
            str(lock),
        )
        stamp.write_bytes(lock.read_bytes())

    return Step(
        "the BMCs of libvirt's machines",
        install,
        15.0,
        (PACKAGES, LIBRARIES),
        lambda: not stamp.exists() or stamp.read_bytes() != lock.read_bytes(),
    )


# -- npm's


def node_modules() -> Step:
    """The libraries in Node.js of the example module and of tests."""
    stamp = VENV / ".npm"
    locks = [ROOT / place / "package-lock.json" for place in NPM]

    def install(shell: Shell) -> None:
        for place in NPM:
            npm(shell, ROOT / place)
        stamp.write_text(_digest(locks))

    return Step(
        "Node.js libraries",
        install,
        15.0,
        (PACKAGES, LIBRARIES, XTERM.name),
        lambda: not stamp.exists() or stamp.read_text() != _digest(locks),
    )


def xterm() -> Step:
    """xterm.js, which shows consoles in the dashboard: copied to what is served, and in no
    commit."""
    lock, stamp = DASHBOARD / "package-lock.json", XTERM / ".lock"

    def install(shell: Shell) -> None:
        npm(shell, DASHBOARD)
        source = DASHBOARD / "node_modules" / "@xterm"
        XTERM.mkdir(exist_ok=True)
        for name in ("css/xterm.css", "LICENSE"):
            shutil.copy(source / "xterm" / name, XTERM)
        for module, target in (
            ("addon-fit/lib/addon-fit.mjs", "fit.js"),
            ("xterm/lib/xterm.mjs", "xterm.js"),
        ):
            text = (source / module).read_text()
            (XTERM / target).write_text(re.sub(r"^//# sourceMappingURL.*\n?", "", text, flags=re.M))
        stamp.write_text(_digest([lock]))

    return Step(
        XTERM.name,
        install,
        5.0,
        (PACKAGES,),
        lambda: not stamp.exists() or stamp.read_text() != _digest([lock]),
    )


def npm(shell: Shell, place: Path) -> None:
    """Installs what a package-lock.json names. Debian's npm is not wanted beside another that is
    there already."""
    if shutil.which("npm") is None:
        shell(*APT, "-y", "--no-install-recommends", "install", "nodejs", "npm", env=QUIET)
    shell(
        "npm",
        "ci",
        "--prefix",
        str(place),
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--silent",
    )


def _digest(files: Sequence[Path]) -> str:
    return hashlib.blake2b(
        b"\0".join(file.read_bytes() for file in files), digest_size=16
    ).hexdigest()


# -- what the product's own code prepares


def fetched(name: str, *items: str, weight: float = 10.0, after: Sequence[str] = ()) -> Step:
    """Items of prefetch.py, one after the other; it finds out for itself which are there already.
    What was fetched within _NEW_S by the same code is not looked at again: to ask apt whether there
    is something newer takes half a minute."""
    sources = [
        *HERE.glob("*.py"),
        *(ROOT / "minos/build").rglob("*.py"),
        ROOT / "packages.txt",
        ROOT / "requirements.lock",
    ]
    stamp = (
        CACHE / f".fetched-{hashlib.blake2b(' '.join(items).encode(), digest_size=8).hexdigest()}"
    )

    def fetch(shell: Shell) -> None:
        shell(str(PYTHON), str(HERE / "prefetch.py"), *items)
        stamp.write_text(_digest(sorted(sources)))

    def needed() -> bool:
        try:
            return time.time() - stamp.stat().st_mtime > _NEW_S or stamp.read_text() != _digest(
                sorted(sources)
            )
        except FileNotFoundError:
            return True

    return Step(name, fetch, weight, (PACKAGES, LIBRARIES, *after), needed)


def images_base() -> Step:
    """The Debian that the demo's images are made of. It needs no library, so it begins as soon as
    there are packages, and whoever needs it waits for it (smallimages.debian_base)."""

    def build(shell: Shell) -> None:
        shell(SYSTEM_PYTHON, str(HERE / "smallimages.py"), str(CACHE / "images"))

    return Step(
        BASE,
        build,
        40.0,
        (PACKAGES,),
        lambda: not (CACHE / "images" / "systemd-bookworm.tar").exists(),
        background=True,
        tries=1,  # it tries again by itself
    )


def inotify_instances() -> Step:
    """More instances of inotify than the kernel's own 128 for all that root runs: tests beside each
    other have agents, browsers and containers with systemd, whose units fail without."""
    file = Path("/proc/sys/fs/inotify/max_user_instances")

    def raised(shell: Shell) -> None:
        file.write_text(str(INSTANCES))

    return Step(
        f"{INSTANCES} instances of inotify",
        raised,
        0.1,
        needed=lambda: os.access(file, os.W_OK) and int(file.read_text()) < INSTANCES,
    )
