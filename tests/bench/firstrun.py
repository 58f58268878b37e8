"""What somebody sees who tries Layercake for the first time: `make demo` and `make sim` on a Debian
with nothing on it.

    python -m tests.bench.firstrun [--suite 12|13] [--store rbd] [--only demo|sim]

A clean root is made by mmdebstrap, with make and git; packages and libraries come from the
registries that this machine uses, and no cache is warm. Each command runs in the root, with mounts
and processes of its own, as it would on a new machine.

demo_s        `make demo`, from its start to `done`
silent_s      the longest time without a line of it (of `make sim`, too)
second_s      `make demo` again
sim_s         `make sim` in a second clean root, until its link to the dashboard is there
installed_mb  what `make demo` adds to the disk
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from cleanroot import SUITES
from headrun import CACHE
from smallimages import ALONE

from imageapi.build.tools import run
from tests.bench.engine import calibration

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("make", "git", "ca-certificates")
CLONE = "root/layercake"
LIMIT_S = 1800.0
_FROM_HERE = (
    "etc/apt",
    "etc/pip.conf",
    "etc/resolv.conf",
    "etc/hosts",
    "etc/ssl/certs/ca-certificates.crt",
    "root/.npmrc",
    "usr/share/keyrings",
)
"""How this machine reaches registries."""
_VARIABLES = re.compile(
    r"PIP_|UV_|NPM_CONFIG_|SSL_CERT|REQUESTS_CA|(https?|no)_proxy$", re.IGNORECASE
)
_LINK = re.compile(r"https://\S+")
_ENTER = """set -e
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
exec chroot . sh -c 'cd "/$0" && exec "$@"' "$@"
"""
"""In new namespaces for mounts and processes; $0 is the root, $1 the directory in it, the rest is
the command."""


class Timed:
    """A command in a root whose lines are timed: `lines` of (seconds after its start, text)."""

    def __init__(self, root: Path, *command: str) -> None:
        self.lines: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*ALONE, "--propagation", "private", "sh", "-c", _ENTER, str(root), CLONE, *command],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def follow(self, until: Callable[[str], bool] = lambda text: False) -> float:
        """Reads it until a line is wanted, or to its end; the seconds that took."""
        assert self._process.stdout is not None
        for text in self._process.stdout:
            now = time.monotonic() - self._began
            self.lines.append((now, text.rstrip()))
            print(f"{now:7.1f} {text.rstrip()[:150]}", file=sys.stderr, flush=True)
            if until(text):
                return now
        self._process.wait(60)
        return time.monotonic() - self._began

    def end(self) -> None:
        """Ctrl-C; then it must end by itself."""
        os.killpg(self._process.pid, signal.SIGINT)
        self.follow()

    def check(self, what: str) -> None:
        """Exits with what it said if it failed."""
        if self._process.returncode:
            said = "\n".join(text for _, text in self.lines[-30:])
            raise SystemExit(f"{what} ended with status {self._process.returncode}:\n{said}")

    @property
    def linked(self) -> bool:
        """Whether it printed a link that signs a browser in."""
        return any(_LINK.search(text) and "#" in text for _, text in self.lines)

    @property
    def silent_s(self) -> float:
        """The longest time without a line."""
        times = [0.0, *(at for at, _ in self.lines)]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


def _environment() -> dict[str, str]:
    """As after a login, with how this machine reaches registries."""
    plain = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
    }
    kept = {name: value for name, value in os.environ.items() if _VARIABLES.match(name)}
    # A directory of packages on this machine is not in the root.
    return plain | {name: value for name, value in kept.items() if not Path(value).is_dir()}


def base(suite: str) -> Path:
    """A Debian with nothing but PACKAGES, as a tar file; made once."""
    made = CACHE / "images" / f"first-{suite}.tar"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        partial = made.with_name(f"partial-{made.name}")
        run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                suite,
                str(partial),
            ],
            f"make a Debian {suite}",
            "mmdebstrap",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        partial.replace(made)
    return made


@contextmanager
def fresh(suite: str) -> Iterator[Path]:
    """A root with nothing on it but this clone, as its files are now, for as long as the context
    lasts."""
    with tempfile.TemporaryDirectory(prefix="firstrun-", dir=CACHE) as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        run(
            ["tar", "-xpf", str(base(suite)), "-C", str(root), "--numeric-owner"],
            "unpack a Debian",
            "tar",
        )
        if suite == SUITES["12"]:
            shutil.rmtree(root / "etc/apt")
        for name in _FROM_HERE if suite == SUITES["12"] else _FROM_HERE[1:]:
            _copy(Path("/") / name, root / name)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root / CLONE)], check=True)
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-mco", "--exclude-standard", "-z"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                _copy(ROOT / name, root / CLONE / name)
        yield root


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        run(
            ["cp", "-aT", "--remove-destination", str(source), str(target)],
            f"copy {source}",
            "coreutils",
        )
    elif source.exists():
        target.unlink(missing_ok=True)
        shutil.copy(source, target)


def demo(suite: str, store: str) -> Mapping[str, float]:
    """`make demo`, twice."""
    words = ["make", "demo", *([f"STORE={store}"] if store else [])]
    with fresh(suite) as root:
        before = _used(root)
        first = Timed(root, *words)
        demo_s = first.follow()
        if (root / CLONE / "build/prepare.log").exists():
            shutil.copy(root / CLONE / "build/prepare.log", ROOT / "build/firstrun.log")
        first.check(" ".join(words))
        installed = _used(root) - before
        second = Timed(root, *words)
        second_s = second.follow()
        second.check(f"the second {' '.join(words)}")
    return {
        "demo_s": round(demo_s, 1),
        "second_s": round(second_s, 1),
        "installed_mb": round(installed / 1e6),
        "silent_s": round(max(first.silent_s, second.silent_s), 1),
    }


def sim(suite: str) -> Mapping[str, float]:
    """`make sim`, until its link is there."""
    with fresh(suite) as root:
        made = Timed(root, "make", "sim")
        sim_s = made.follow(lambda text: bool(_LINK.search(text) and "#" in text))
        if not made.linked:
            made.check("make sim")
            raise SystemExit("make sim printed no link")
        made.end()
    return {"sim_s": round(sim_s, 1), "sim_silent_s": round(made.silent_s, 1)}


def _used(root: Path) -> int:
    return int(
        subprocess.run(
            ["du", "-s", "-B1", "-x", str(root)], check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )


def main() -> int:
    """The command; prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, default="12")
    parser.add_argument("--store", choices=("rbd",), default="")
    parser.add_argument("--only", choices=("demo", "sim"), default="")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("firstrun needs root: it makes a root for a machine of its own")
    found: dict[str, float] = {"calibration_s": calibration()}
    if options.only != "sim":
        found |= demo(SUITES[options.suite], options.store)
    if options.only != "demo":
        found |= sim(SUITES[options.suite])
    found["silent_s"] = max(found.get("silent_s", 0.0), found.pop("sim_silent_s", 0.0))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
