"""The package, built once; a clean Debian on which it is installed, shared by the tests of a file
in their order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from cleanroot import SUITES, CleanRoot, base
from headrun import CACHE

from layercake.debian.build import QUICK, build
from tests.support.once import made_once


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """layercake_VERSION_amd64.deb."""
    made = made_once(tmp_path_factory, "package", lambda out: build(out, QUICK))
    return next(made.glob("*.deb"))


@pytest.fixture(scope="session")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same under a later version."""
    tree = tmp_path_factory.mktemp("newer") / "tree"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 1:", 1))
    made = tree.parent / "layercake_newer_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", *QUICK, "--build", str(tree), str(made)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return made


@pytest.fixture(scope="module", params=SUITES)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CleanRoot]:
    """A machine with nothing but Debian on it."""
    with CleanRoot(
        tmp_path_factory.mktemp(f"debian-{request.param}"),
        base(CACHE / "images", SUITES[request.param]),
    ) as made:
        yield made
