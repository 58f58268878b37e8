"""The site, built once for all tests of the folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.once import made_once

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    return made_once(tmp_path_factory, "site", _build) / "html"


def _build(out: Path) -> None:
    command = [
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        str(out / "trees"),
        str(ROOT / "docs"),
        str(out / "html"),
    ]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
