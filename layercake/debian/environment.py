"""The virtual environment in the package: Layercake and its libraries, for every Python that the
package serves.

Below lib/ in the environment, `python3/site-packages` has what is the same for all Pythons, which
is most, and `python3.N/site-packages` what is compiled for one of them; a library is in one of the
two as a whole. A .pth file in the latter names the former. bin/python3 is Debian's, whichever that
is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layercake.kraken.errors import OperationFailed

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.13")
"""Of Debian 12 and 13."""
PLATFORM = "x86_64-manylinux_2_31"
FROM_DEBIAN: Mapping[str, str] = {
    "certifi": "python3-certifi",
    "charset-normalizer": "python3-charset-normalizer",
    "clustershell": "python3-clustershell",
    "idna": "python3-idna",
    "jinja2": "python3-jinja2",
    "markdown-it-py": "python3-markdown-it",
    "markupsafe": "python3-markupsafe",
    "mdurl": "python3-mdurl",
    "pygments": "python3-pygments",
    "python-dateutil": "python3-dateutil",
    "pyyaml": "python3-yaml",
    "requests": "python3-requests",
    "rich": "python3-rich",
    "urllib3": "python3-urllib3",
}
SOURCES = (
    "layercake",
    "pxe",
    "powerman",
    "imageapi",
    "minos",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "NOTICE",
)
ENVIRONMENT = "usr/lib/layercake"
SHARED = "lib/python3/site-packages"
PATHS = (f"/{ENVIRONMENT}/{SHARED}", "/usr/local/lib/layercake", "/usr/lib/python3/dist-packages")
"""What the environment sees besides what is compiled for its Python: the other libraries, a site's
own modules, and Debian's packages. Not what pip has put into the system."""
LEFT_OUT = (
    "pyghmi/tests",
    "sushy/tests",
    "stevedore/tests",
    "pbr/tests",
    "distutils-precedence.pth",
    "multidict/_testcapi.*",
)
"""What nobody runs on a head: tests of libraries, and what setuptools would do whenever a Python
starts."""
_RECORDS = ("direct_url.json", "uv_cache.json", "RECORD", "REQUESTED", "INSTALLER")
_BESIDE = ("bin", "etc", "share", ".lock")
"""What uv's --target puts beside the libraries."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library in the environment: its *.dist-info, and patterns for its files below
    site-packages."""

    info: Path
    files: tuple[str, ...]


def make(place: Path, scratch: Path, environment: Mapping[str, str]) -> list[Library]:
    """Makes the environment at `place`; the libraries in it, by their names. Raises
    OperationFailed."""
    wheel = _wheel(scratch, environment)
    wanted = scratch / "requirements.txt"
    wanted.write_text(without((ROOT / "requirements.lock").read_text(), FROM_DEBIAN))
    sites = {number: _site(place, number) for number in PYTHONS}
    for number, site in sites.items():
        _install(site, number, wanted, wheel, environment)
    _share(place / SHARED, list(sites.values()))
    libraries = _libraries([place / SHARED, *sites.values()])
    for site in sites.values():
        (site / "layercake.pth").write_text("".join(f"{path}\n" for path in PATHS))
    _strip(place, environment)
    (place / "bin").mkdir()
    (place / "bin" / "python3").symlink_to("../../../bin/python3")
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return libraries


def _install(
    site: Path, number: str, wanted: Path, wheel: Path, environment: Mapping[str, str]
) -> None:
    """Installs the libraries of a file of requirements, and our wheel, for one Python."""
    install = (
        "pip",
        "install",
        "--target",
        str(site),
        "--python-version",
        number,
        "--python-platform",
        PLATFORM,
        "--only-binary",
        ":all:",
        "--no-deps",
        "--link-mode",
        "copy",
        "--no-compile",
    )
    _uv(*install, "--require-hashes", "-r", str(wanted), environment=environment)
    _uv(*install, str(wheel), environment=environment)
    for name in (*_BESIDE, *LEFT_OUT):
        for path in site.glob(name):
            _remove(path)


def _libraries(sites: Sequence[Path]) -> list[Library]:
    """The libraries in these directories, by their names. Their records of the installation are
    removed."""
    libraries: dict[str, Library] = {}
    for site in sites:
        for record in sorted(site.glob("*.dist-info/RECORD")):
            name = record.parent.name
            before = libraries[name].files if name in libraries else ()
            files = {*_patterns(site, record), *before}
            libraries[name] = Library(record.parent, tuple(sorted(files)))
        for name in _RECORDS:
            for path in site.glob(f"*.dist-info/{name}"):
                path.unlink()
    return [library for _, library in sorted(libraries.items())]


def _site(place: Path, number: str) -> Path:
    return place / "lib" / f"python{number}" / "site-packages"


def _wheel(scratch: Path, environment: Mapping[str, str]) -> Path:
    """Layercake itself as a wheel, out of a copy: setuptools leaves things beside the sources."""
    source = scratch / "source"
    source.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(
                path, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
            )
        else:
            shutil.copy(path, source)
    shutil.rmtree(
        source / "layercake/debian"
    )  # this package: it is of no use once it has built one
    _uv(
        "build",
        "--wheel",
        "--no-build-isolation",
        "--out-dir",
        str(scratch),
        str(source),
        environment=environment,
    )
    return next(scratch.glob("*.whl"))


def without(lock: str, names: Mapping[str, str]) -> str:
    """A lock file without the libraries of these names. Raises OperationFailed for one that is not
    in it."""
    entries = re.findall(r"^[^\s#].*?(?=^[^\s#]|\Z)", lock, re.M | re.S)
    requirements = {re.split(r"[=\s;\[]", entry, maxsplit=1)[0]: entry for entry in entries}
    if missing := names.keys() - requirements.keys():
        raise OperationFailed(
            f"cannot leave out {', '.join(sorted(missing))}: requirements.lock does not have it"
        )
    return "".join(entry for name, entry in requirements.items() if name not in names)


# -- what is the same for all Pythons


def _share(shared: Path, sites: Sequence[Path]) -> None:
    """Moves each library that is the same in all `sites` to `shared`."""
    first, *others = sites
    for record in sorted(first.glob("*.dist-info/RECORD")):
        files = sorted(_files(first, record))
        digest = _digest(first, files)
        if any(_digest(other, files) != digest for other in others):
            continue
        for name in files:
            (shared / name).parent.mkdir(parents=True, exist_ok=True)
            (first / name).rename(shared / name)
            for other in others:
                (other / name).unlink()
    for site in sites:
        for path in sorted(site.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _files(site: Path, record: Path) -> Iterator[str]:
    """The files of a library that are there, by its RECORD, and what the installer has written
    beside that."""
    for line in record.read_text().splitlines():
        name = line.rsplit(",", 2)[0].strip('"')
        if (site / name).is_file():
            yield name
    yield from (
        str(path.relative_to(site))
        for path in record.parent.iterdir()
        if path.name in _RECORDS
        and path.name != "RECORD"
        and f"{path.name}," not in record.read_text()
    )


def _patterns(site: Path, record: Path) -> set[str]:
    """Patterns for the files of a library: its packages, and in packages that several libraries
    share, what is below."""
    patterns = set[str]()
    for name in _files(site, record):
        parts = Path(name).parts
        depth = (
            1
            if len(parts) == 1
            or (site / parts[0] / "__init__.py").is_file()
            or parts[0] == record.parent.name
            else 2
        )
        patterns.add("/".join(parts[:depth]) + ("/*" if len(parts) > depth else ""))
    return patterns


def _digest(site: Path, files: Sequence[str]) -> str:
    """A digest of a library's files, but for those that differ with each installation; "" where one
    is missing."""
    sha256 = hashlib.sha256()
    for name in files:
        if not (site / name).is_file():
            return ""
        if Path(name).name not in (*_RECORDS, "WHEEL"):
            sha256.update(f"{name}\0".encode() + (site / name).read_bytes())
    return sha256.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


# -- what is compiled


def compiled(place: Path) -> list[Path]:
    """The extension modules below a directory."""
    return sorted(place.rglob("*.so"))


def _strip(place: Path, environment: Mapping[str, str]) -> None:
    """Takes the symbols out that only debuggers and linkers want."""
    run(
        [
            "strip",
            "--strip-unneeded",
            "--remove-section=.comment",
            "--remove-section=.note",
            *map(str, compiled(place)),
        ],
        environment,
    )


def _uv(*words: str, environment: Mapping[str, str]) -> None:
    run([sys.executable, "-m", "uv", "-q", *words, "--python", sys.executable], environment)


_PACKAGE_OF = {"strip": "binutils", "objdump": "binutils"}


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Runs a tool of the build; its output. Raises OperationFailed."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment or os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        package = _PACKAGE_OF.get(command[0], command[0])
        raise OperationFailed(
            f"cannot run {command[0]}: it is not installed", hint=f"apt-get install {package}"
        ) from None
    if done.returncode != 0:
        raise OperationFailed(
            f"cannot build the package: {' '.join(command[:6])}: {done.stderr.strip()[-2000:]}"
        )
    return done.stdout
