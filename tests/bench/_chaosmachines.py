"""What the machines of `chaos` are made of: each head and each member of the store has a disk of
its own, that may be full or stand still; each head has a clock, and a version of Layercake."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from layercake.fleet.persistence.schema import SCHEMA_VERSION
from tests.support.steppedclock import SteppedClock

ROOT = Path(__file__).resolve().parents[2]
HEAD_BYTES = 192 << 20
MEMBER_BYTES = 320 << 20
"""etcd has files of 64 MiB for what it writes next."""
_PARTS = ("layercake", "pxe", "powerman", "imageapi", "minos")
_NEXT = """
_MIGRATIONS.update(
    (old, lambda db, old=old: db.execute(f"ALTER TABLE audit ADD COLUMN later{old} TEXT"))
    for old in range(%d, SCHEMA_VERSION)
)
"""
"""Each further version has a further column: rows of one version do not fit into the other's."""


def mount(image: Path, directory: Path, size: int) -> None:
    """Puts a disk of this size below a directory that is there, with what is in it; it ends with
    the mount namespace. Raises CalledProcessError where that is not allowed."""
    with image.open("wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-m", "0", image)
    aside = image.with_suffix(".mnt")
    aside.mkdir()
    _run("mount", "-o", "loop", image, aside)
    _run("cp", "-a", f"{directory}/.", aside)
    _run("mount", "--move", aside, directory)


def _run(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True, capture_output=True)


class Versions:
    """Versions of Layercake that come after this one, made when they are needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._newest = SCHEMA_VERSION

    def make_next(self) -> dict[str, str]:
        """The environment of a head of a version after all others: the database of each has
        another form."""
        self._newest += 1
        tree = self._directory / f"schema-{self._newest}"
        for part in _PARTS:
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, tree / part, ignore=skipped)
        schema = tree / "layercake/fleet/persistence/schema.py"
        newer = f"\nSCHEMA_VERSION = {self._newest}\n"
        text = re.sub(r"\nSCHEMA_VERSION = \d+\n", newer, schema.read_text())
        schema.write_text(text + _NEXT % SCHEMA_VERSION)
        about = tree / "layercake/__init__.py"
        about.write_text(re.sub(r'"\d[^"]*"\n', f'"9.{self._newest}"\n', about.read_text()))
        return {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


def clock_of(directory: Path, name: str) -> SteppedClock:
    """A clock of a head's own."""
    directory.mkdir(exist_ok=True)
    return SteppedClock(directory / name)


def logs_aside(directory: Path, logs: Path, *names: str) -> None:
    """What is written to these logs does not go to the disk that they are on: a head writes to the
    system's log."""
    logs.mkdir(exist_ok=True)
    for name in names:
        to = logs / f"{directory.name}-{name}"
        to.touch()
        (directory / name).symlink_to(to)
