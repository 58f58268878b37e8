"""A head over two nodes of two groups that know nothing of each other, with images, and a roll of
each node."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from imageapi.store.store import ImageStore
from layercake.features.rolls.operations import RollStart
from tests.support.world import World, opened

OWN, OTHER = "phys0", "chem0"
RACK = """
groups: {physics: {}, chemistry: {}}
nodes:
  phys0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, groups: [physics], images: [one], kernel_args: canary-kernel,
          bmc: {driver: ipmi, address: canary-bmc.example, username: canary-user, password: {env: NOBODY}}}
  chem0: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, groups: [chemistry], images: [one]}
"""
CONTAINER = {
    "systemd": False,
    "command": ["/bin/serve", "--password=canary-command"],
    "env": {"KEY": "canary-env"},
}
OWN_ROLL, OTHER_ROLL = 1, 2


@contextlib.asynccontextmanager
async def rack(directory: Path, **settings: Any) -> AsyncIterator[World]:
    """A head with nodes of two groups, with these settings."""
    async with opened(directory, **settings) as found:
        for name in ("one", "two", "three"):
            file = directory / f"{name}.squashfs"
            file.write_bytes(b"hsqs" + name.encode() * 10)
            found.head.part(ImageStore).add(file, name, CONTAINER)
        await found.ops.inventory.apply(RACK, "rack.yaml", None, True)
        for node in (OWN, OTHER):
            found.attach(node)
            await found.ops.rolls.start(RollStart(node, "two", by="ann"))
        yield found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with rack(tmp_path) as found:
        yield found
