"""`make deb`: the Debian package, in build/.

One package serves Debian 12 and 13. Its virtual environment, /usr/lib/layercake, has libraries for
both of their Pythons (environment.py). What is in it comes from requirements.lock, by hash, as
wheels. A library is Debian's own (FROM_DEBIAN) where both have it in a version that pyproject.toml
allows, and nothing of ours is compiled against it. The same sources give the same bytes; all is
dated to SOURCE_DATE_EPOCH, or to the last commit. What the dashboard has from npm is taken from
where `make install` has put it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from layercake.debian import control, documentation, environment
from layercake.debian.control import ARCHITECTURE, HERE, NAME, changelog
from layercake.debian.copyright import copyright_file
from layercake.debian.environment import ENVIRONMENT, ROOT, run
from layercake.debian.manual import completions, manual
from layercake.kraken.errors import LayercakeError, OperationFailed

XTERM = ROOT / "layercake/dashboard/web/xterm/xterm.js"
PLACES: Mapping[str, int] = {"etc/layercake": 0o755, "var/lib/layercake": 0o700}
PACKED = ("-Zxz", "-z6")
"""How dpkg-deb packs it: xz is what every tool of Debian's takes."""
QUICK = ("-Zgzip", "-z1")
"""How dpkg-deb packs what is only tried out."""
LAUNCHER = f"""#!/{ENVIRONMENT}/bin/python3 -I
import sys

from layercake.cli.main import main

sys.exit(main())
"""
UNITS = ("layercake.service", "layercake-store.service")
OCF_AGENT = "usr/lib/ocf/resource.d/layercake/layercake"
"""Where Pacemaker looks for ocf:layercake:layercake."""
DOCUMENTS = "usr/share/doc/layercake"


def build(out: Path, packed: Sequence[str] = PACKED) -> Path:
    """Builds the package into a directory, packed as dpkg-deb's options say; its path. Raises
    OperationFailed."""
    if not XTERM.is_file():
        raise OperationFailed(
            f"cannot build the package: {XTERM.relative_to(ROOT)} is not there",
            hint="`make install` fetches it",
        )
    version = str(control.project()["version"])
    scratch = out / "deb"
    shutil.rmtree(scratch, ignore_errors=True)
    tree = scratch / NAME
    tree.mkdir(parents=True)
    variables = {**os.environ, "SOURCE_DATE_EPOCH": epoch(), "LC_ALL": "C.UTF-8"}
    bundled = environment.make(tree / ENVIRONMENT, scratch, variables)
    _programs(tree)
    documentation.add(tree, scratch, variables)
    _pages(tree, version, int(variables["SOURCE_DATE_EPOCH"]))
    (tree / DOCUMENTS / "copyright").write_text(copyright_file(bundled, XTERM.parent))
    for place, mode in PLACES.items():
        (tree / place).mkdir(parents=True, mode=mode)
    _modes(tree)
    control.write(tree, version)
    package = out / f"{NAME}_{version}_{ARCHITECTURE}.deb"
    run(["dpkg-deb", "--root-owner-group", *packed, "--build", str(tree), str(package)], variables)
    shutil.rmtree(scratch)
    return package


def libraries() -> None:
    """Fetches what the package needs of PyPI into uv's cache. Raises OperationFailed."""
    with tempfile.TemporaryDirectory(prefix="layercake-deb-") as scratch:
        environment.make(
            Path(scratch) / "environment",
            Path(scratch),
            {**os.environ, "SOURCE_DATE_EPOCH": epoch()},
        )


def epoch() -> str:
    """Seconds since 1970 that everything in the package is dated to."""
    if variable := os.environ.get("SOURCE_DATE_EPOCH"):
        return variable
    try:
        return run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]).strip()
    except OperationFailed:  # not a clone
        return str(int((ROOT / "CHANGELOG.md").stat().st_mtime))


def _programs(tree: Path) -> None:
    launcher = tree / "usr/bin/layercake"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(HERE / unit, units)
    agent = tree / OCF_AGENT
    agent.parent.mkdir(parents=True)
    shutil.copy(HERE / "ocf-agent", agent)
    for path, text in completions().items():
        (tree / path).parent.mkdir(parents=True)
        (tree / path).write_text(text)


def _pages(tree: Path, version: str, seconds: int) -> None:
    pages = tree / "usr/share/man/man1"
    pages.mkdir(parents=True)
    for name, text in manual(version, seconds).items():
        (pages / name).write_text(text)
    documents = tree / DOCUMENTS
    documents.mkdir(parents=True, exist_ok=True)
    (documents / "changelog").write_text(changelog((ROOT / "CHANGELOG.md").read_text(), seconds))
    run(["gzip", "-9n", str(documents / "changelog"), *map(str, sorted(pages.iterdir()))])
    for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "NOTICE"):
        shutil.copy(ROOT / name, documents)
    for name in ("power", "prometheus"):
        shutil.copytree(
            ROOT / "examples" / name,
            documents / "examples" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    overrides = tree / "usr/share/lintian/overrides"
    overrides.mkdir(parents=True)
    shutil.copy(HERE / "lintian-overrides", overrides / NAME)


def _modes(tree: Path) -> None:
    """One mode for all builders, whatever their umask: only programs can be executed, and only
    their owner writes."""
    tree.chmod(0o755)
    for path in sorted(tree.rglob("*")):
        if path.is_symlink():
            continue
        if path.is_dir():
            path.chmod(PLACES.get(str(path.relative_to(tree)), 0o755))
        else:
            path.chmod(
                0o755 if path.stat().st_mode & 0o100 and path.read_bytes()[:2] == b"#!" else 0o644
            )


def main() -> int:
    """The command; returns the exit status."""
    try:
        sys.stdout.write(f"{build(ROOT / 'build')}\n")
    except LayercakeError as error:
        sys.stderr.write(f"{error}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
