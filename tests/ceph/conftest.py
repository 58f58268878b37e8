"""One real Ceph for all tests of this folder, on a loopback address of its own; it starts in about
a second."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from cephrun import Ceph


@pytest.fixture(scope="session")
def ceph() -> Iterator[Ceph]:
    with (
        tempfile.TemporaryDirectory(prefix="layercake-ceph-") as directory,
        Ceph(Path(directory)) as found,
    ):
        yield found
