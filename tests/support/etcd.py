"""Three members of a real etcd on loopback, which a test may stop, suspend and wipe."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.heads.member import PROGRAM, QUOTA_BYTES
from layercake.sim.fleet.etcd import EtcdMembers, free_ports

__all__ = ["EtcdMembers", "etcd_members", "free_ports"]


@contextlib.contextmanager
def etcd_members(
    directory: Path, count: int = 3, quota_bytes: int = QUOTA_BYTES
) -> Iterator[EtcdMembers]:
    """Members that answer. Skips where there is no etcd: `make test` installs it."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    members = EtcdMembers(directory, count, quota_bytes)
    try:
        members.start()
        members.wait()
        yield members
    finally:
        members.kill()
