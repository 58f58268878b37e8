"""A head as a process, with modules of a site's own, and one pretended node with a real agent."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import HostSite

from layercake.modules.declared import SiteModule

Open = Callable[..., AbstractContextManager[HostSite]]


@contextlib.contextmanager
def open_site(
    modules: Mapping[str, SiteModule], *, python: str = sys.executable, converged: bool = True
) -> Iterator[HostSite]:
    """A site with these modules and the node h0, which has converged unless it need not."""
    with tempfile.TemporaryDirectory(prefix="layercake-modules-") as scratch:
        site = HostSite(Path(scratch) / "site", 1, {}, modules=modules, python=python)
        try:
            if converged:
                site.up()
            else:
                site.begin()
            yield site
        finally:
            site.down()


@pytest.fixture
def site_with() -> Open:
    """Opens a site; see open_site."""
    return open_site
