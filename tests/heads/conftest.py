"""etcd for the tests of several heads: the same three members, each test below a prefix of its
own; and the world of a head that has others beside it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from layercake.heads.etcd import Etcd
from layercake.heads.log import Seal, SharedLog
from tests.support.etcd import EtcdMembers, etcd_members
from tests.support.world import World, opened

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as found:
        yield found


@pytest.fixture
def prefix() -> str:
    return f"/test{next(_prefixes)}/"


@pytest.fixture
async def shared(members: EtcdMembers, prefix: str) -> AsyncIterator[SharedLog]:
    store = Etcd(members.endpoints)
    yield SharedLog(store, prefix, Seal(bytes(32)))
    await store.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Ready with two nodes."""
    async with opened(tmp_path) as found:
        yield found
