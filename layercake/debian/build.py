"""`make deb`: the Debian package, in build/.

One package serves Debian 12 and 13. Its virtual environment, /usr/lib/layercake, has a lib/python3.N for each of PYTHONS, and
bin/python3 in it is Debian's, whichever that is. What is in it comes from requirements.lock, by hash, as wheels. A library is
Debian's own (FROM_DEBIAN) where both have it in a version that pyproject.toml allows, and nothing of ours is compiled against it.
The same sources give the same bytes; all is dated to SOURCE_DATE_EPOCH, or to the last commit. What the dashboard has from npm is
taken from where `make install` has put it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from layercake.debian.manual import completions, manual
from layercake.kraken.errors import LayercakeError, OperationFailed

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
NAME, ARCHITECTURE = "layercake", "amd64"
XTERM = ROOT / "layercake/dashboard/web/xterm/xterm.js"
PYTHONS = ("3.11", "3.13")
"""Of Debian 12 and 13."""
PLATFORM = "x86_64-manylinux_2_31"
FROM_DEBIAN: Mapping[str, str] = {
    "certifi": "python3-certifi", "charset-normalizer": "python3-charset-normalizer",
    "clustershell": "python3-clustershell", "idna": "python3-idna", "jinja2": "python3-jinja2",
    "markdown-it-py": "python3-markdown-it", "markupsafe": "python3-markupsafe", "mdurl": "python3-mdurl",
    "pygments": "python3-pygments", "python-dateutil": "python3-dateutil", "pyyaml": "python3-yaml",
    "requests": "python3-requests", "rich": "python3-rich", "urllib3": "python3-urllib3",
}
SOURCES = ("layercake", "pxe", "powerman", "imageapi", "minos", "pyproject.toml", "README.md")
PLACES: Mapping[str, int] = {"etc/layercake": 0o755, "var/lib/layercake": 0o700}
ENVIRONMENT = "usr/lib/layercake"
PATHS = ("/usr/local/lib/layercake", "/usr/lib/python3/dist-packages")
"""What the environment sees besides itself: a site's own modules, and Debian's packages. Not what pip has put into the system."""
LAUNCHER = f"""#!/{ENVIRONMENT}/bin/python3 -I
import sys

from layercake.cli.main import main

sys.exit(main())
"""


def build(out: Path, level: int = 12) -> Path:
    """Builds the package into a directory, compressed by zstd at a level; its path. Raises OperationFailed."""
    if not XTERM.is_file():
        raise OperationFailed(f"cannot build the package: {XTERM.relative_to(ROOT)} is not there", hint="`make install` fetches it")
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    scratch = out / "deb"
    shutil.rmtree(scratch, ignore_errors=True)
    tree = scratch / NAME
    tree.mkdir(parents=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch(), "LC_ALL": "C.UTF-8"}
    _libraries(tree / ENVIRONMENT, scratch, environment)
    _programs(tree)
    _pages(tree, version, int(environment["SOURCE_DATE_EPOCH"]))
    for place, mode in PLACES.items():
        (tree / place).mkdir(parents=True, mode=mode)
    _modes(tree)
    _control(tree, version)
    package = out / f"{NAME}_{version}_{ARCHITECTURE}.deb"
    _run(["dpkg-deb", "--root-owner-group", "-Zzstd", f"-z{level}", "--build", str(tree), str(package)], environment)
    shutil.rmtree(scratch)
    return package


def libraries() -> None:
    """Fetches what the package needs of PyPI into uv's cache. Raises OperationFailed."""
    with tempfile.TemporaryDirectory(prefix="layercake-deb-") as scratch:
        _libraries(Path(scratch) / "environment", Path(scratch), {**os.environ, "SOURCE_DATE_EPOCH": epoch()})


def epoch() -> str:
    """Seconds since 1970 that everything in the package is dated to."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    try:
        return _run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], dict(os.environ)).strip()
    except OperationFailed:  # not a clone
        return str(int((ROOT / "CHANGELOG.md").stat().st_mtime))


# -- the virtual environment


def _libraries(place: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    source = scratch / "source"
    source.mkdir()
    for name in SOURCES:  # setuptools leaves things beside the sources
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(path, source)
    shutil.rmtree(source / "layercake/debian")  # this package: it is of no use once it has built one
    wanted = scratch / "requirements.txt"
    wanted.write_text(without((ROOT / "requirements.lock").read_text(), FROM_DEBIAN))
    _uv("build", "--wheel", "--no-build-isolation", "--out-dir", str(scratch), str(source), environment=environment)
    wheel = next(scratch.glob("*.whl"))
    for number in PYTHONS:
        site = place / "lib" / f"python{number}" / "site-packages"
        install = ("pip", "install", "--target", str(site), "--python-version", number, "--python-platform", PLATFORM,
                   "--only-binary", ":all:", "--no-deps", "--link-mode", "copy", "--no-compile")
        _uv(*install, "--require-hashes", "-r", str(wanted), environment=environment)
        _uv(*install, str(wheel), environment=environment)
        for found in ("bin", "etc", "share", ".lock"):  # what --target puts beside the libraries
            path = site / found
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for found in ("direct_url.json", "uv_cache.json", "RECORD", "REQUESTED"):
            for path in site.glob(f"*.dist-info/{found}"):
                path.unlink()
        (site / "layercake.pth").write_text("".join(f"{path}\n" for path in PATHS))
    _share(*(place / "lib" / f"python{number}" / "site-packages" for number in PYTHONS))
    (place / "bin").mkdir()
    (place / "bin" / "python3").symlink_to("/usr/bin/python3")
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def _share(first: Path, *others: Path) -> None:
    """Files that are the same for several Pythons are one file: most are."""
    for other in others:
        for path in other.rglob("*"):
            same = first / path.relative_to(other)
            if path.is_file() and same.is_file() and path.read_bytes() == same.read_bytes():
                path.unlink()
                path.hardlink_to(same)


def without(lock: str, names: Mapping[str, str]) -> str:
    """A lock file without the libraries of these names. Raises OperationFailed for one that is not in it."""
    entries = re.findall(r"^[^\s#].*?(?=^[^\s#]|\Z)", lock, re.M | re.S)
    found = {re.split(r"[=\s;\[]", entry, maxsplit=1)[0]: entry for entry in entries}
    if missing := names.keys() - found.keys():
        raise OperationFailed(f"cannot leave out {', '.join(sorted(missing))}: requirements.lock does not have it")
    return "".join(entry for name, entry in found.items() if name not in names)


def _uv(*words: str, environment: Mapping[str, str]) -> None:
    _run([sys.executable, "-m", "uv", "-q", *words, "--python", sys.executable], environment)


# -- what is around it


def _programs(tree: Path) -> None:
    launcher = tree / "usr/bin/layercake"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    shutil.copy(HERE / "layercake.service", units)
    for path, text in completions().items():
        (tree / path).parent.mkdir(parents=True)
        (tree / path).write_text(text)


def _pages(tree: Path, version: str, seconds: int) -> None:
    pages = tree / "usr/share/man/man1"
    pages.mkdir(parents=True)
    for name, text in manual(version, seconds).items():
        (pages / name).write_text(text)
    _run(["gzip", "-9n", *map(str, sorted(pages.iterdir()))], dict(os.environ))
    documents = tree / "usr/share/doc/layercake"
    documents.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, documents)
    for name in ("power", "prometheus"):
        shutil.copytree(ROOT / "examples" / name, documents / "examples" / name, ignore=shutil.ignore_patterns("__pycache__"))


def _modes(tree: Path) -> None:
    """One mode for all builders, whatever their umask: only programs can be executed, and only their owner writes."""
    tree.chmod(0o755)
    for path in sorted(tree.rglob("*")):
        if path.is_symlink():
            continue
        if path.is_dir():
            path.chmod(PLACES.get(str(path.relative_to(tree)), 0o755))
        else:
            path.chmod(0o755 if path.stat().st_mode & 0o100 and path.suffix != ".so" else 0o644)


def depends(text: str) -> tuple[list[str], list[str]]:
    """What packages.txt asks for: (always, recommended)."""
    always, _, recommended = text.partition("# Recommended")
    names = [[line for line in part.splitlines() if line and not line.startswith(("#", ":"))] for part in (always, recommended)]
    return names[0], names[1]


def _control(tree: Path, version: str) -> None:
    size = sum(max(1, (path.stat().st_size + 1023) // 1024) for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
            for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    always, recommended = depends((ROOT / "packages.txt").read_text())
    control = tree / "DEBIAN"
    control.mkdir()
    first, after = PYTHONS[0], int(PYTHONS[-1].partition(".")[2]) + 1
    bounds = [f"python3 (>= {first}~)", f"python3 (<< 3.{after}~)"]
    words = [*bounds, *sorted(FROM_DEBIAN.values()), *(p for p in always if p != "python3"), "init-system-helpers"]
    fields = {
        "Package": NAME, "Version": version, "Architecture": ARCHITECTURE,
        "Maintainer": "the maintainers of Layercake <root@localhost>",
        "Installed-Size": str(size), "Depends": ", ".join(words), "Recommends": ", ".join(recommended),
        "Suggests": "slurm-client, ipmitool", "Section": "admin", "Priority": "optional",
        "Description": "takes a rack of bare metal from power-off to running system images\n"
        " One service on a head node: DHCP, TFTP and HTTP boot, IPMI and Redfish, images,\n and a state engine that keeps each"
        " node where the inventory wants it.",
    }
    (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    (control / "md5sums").write_text("".join(sums))
    for name in ("preinst", "postinst", "prerm", "postrm", "triggers"):
        shutil.copy(HERE / name, control)
        (control / name).chmod(0o644 if name == "triggers" else 0o755)
    control.chmod(0o755)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise OperationFailed(f"cannot run {command[0]}: it is not installed", hint=f"apt-get install {command[0]}") from None
    if done.returncode != 0:
        raise OperationFailed(f"cannot build the package: {' '.join(command[:6])}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> int:
    """The command; returns the exit status."""
    try:
        sys.stdout.write(f"{build(ROOT / 'build')}\n")
    except LayercakeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
