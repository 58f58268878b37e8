"""What the site wants replaced after a time is asked for, once a day until it is done."""

from __future__ import annotations

import os
import time
from pathlib import Path

from layercake.agents import pki
from layercake.features.authority.rotation import DAY_S, Rotations
from layercake.features.authority.settings import RotationSettings
from layercake.fleet import events
from tests.support.world import World, opened

RACK = """
nodes:
  n[0-2]: {mac: "52:54:00:00:00:10+", ip: 10.1.0.10+,
           bmc: {driver: ipmi, address: 10.2.0.10+, username: u, password: {file: SECRETS/old}}}
  n3: {mac: "52:54:00:00:00:20", ip: 10.1.0.20,
       bmc: {driver: ipmi, address: 10.2.0.20, username: u, password: {file: SECRETS/fresh}}}
  n4: {mac: "52:54:00:00:00:21", ip: 10.1.0.21,
       bmc: {driver: ipmi, address: 10.2.0.21, username: u, password: {env: NOBODY}}}
  n5: {mac: "52:54:00:00:00:22", ip: 10.1.0.22,
       bmc: {driver: ipmi, address: 10.2.0.22, username: u, password: {file: SECRETS/none}}}
"""


def texts(world: World) -> list[str]:
    return [e.text for e in world.head.store.alarms if e.kind == events.ROTATION_DUE.name]


async def reminded(directory: Path, settings: RotationSettings) -> list[str]:
    """What is due 40 days after the authority and the passwords were made, but for one."""
    pki.create(directory / "pki", "127.0.0.1")
    secrets = directory / "secrets"
    secrets.mkdir()
    now = time.time() + 40 * DAY_S
    for name, at in (("old", time.time()), ("fresh", now)):
        (secrets / name).write_text("canary-password\n")
        (secrets / name).chmod(0o600)
        os.utime(secrets / name, (at, at))
    async with opened(directory, rotation=settings) as world:
        await world.ops.inventory.apply(
            RACK.replace("SECRETS", str(secrets)), "rack.yaml", None, True
        )
        world.clock.now = now
        await world.head.part(Rotations).remind()
        return texts(world)


async def test_what_is_older_than_the_site_wants_is_told(tmp_path: Path) -> None:
    [text] = await reminded(tmp_path, RotationSettings(authority_days=30, bmc_passwords_days=39))
    authority, passwords = text.split("; ")
    assert "the head's authority is older than 30 days" in authority
    assert passwords == "the passwords of BMCs are older than 39 days: n[0-2]"


async def test_what_is_young_enough_is_not(tmp_path: Path) -> None:
    assert not await reminded(tmp_path, RotationSettings(authority_days=41, bmc_passwords_days=41))


async def test_nothing_is_due_where_the_site_says_nothing(tmp_path: Path) -> None:
    assert not await reminded(tmp_path, RotationSettings())
