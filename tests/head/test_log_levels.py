"""Log levels of the head's parts and of its modules, changed while they run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from layercake.base.logs.lines import AUDIT
from layercake.kraken.errors import NotFound
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.client import set_log_level
from layercake.modules.log_levels import LogLevels
from pxe.module import MODULE
from tests.support.api import served, token
from tests.support.world import World


class Host:
    """What modules are told."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, module: str, message: pb.FromHead) -> bool:
        self.sent.append((module, message.log_level))
        return True


@pytest.fixture
async def levels(world: World) -> AsyncIterator[LogLevels]:
    found = world.head.modules.log_levels
    yield found
    found.reset()


async def test_a_part_of_the_head_logs_more_until_the_head_ends(
    levels: LogLevels, caplog: pytest.LogCaptureFixture, world: World
) -> None:
    async with served(world.head, local=True) as client:
        await client.get("http://head/v1/nodes")
        assert "GET /v1/nodes" not in caplog.text
        answer = await client.post(
            "http://head/v1/log-levels", json={"name": "layercake.api", "level": "debug"}
        )
        shown = (await answer.json())["levels"]
        assert {"name": "layercake.api", "level": "debug", "changed": True} in shown
        await client.get("http://head/v1/nodes?range=n0")
        assert "GET /v1/nodes of" in caplog.text, "what is asked for stands in no log"
        status = await (await client.get("http://head/v1/status")).json()
        assert status["log_levels"] == {"layercake.api": "debug"}
        await client.post(
            "http://head/v1/log-levels", json={"name": "layercake.api", "level": "default"}
        )
        caplog.clear()
        await client.get("http://head/v1/nodes")
        assert "GET /v1/nodes" not in caplog.text
    texts = [e.text for e in world.head.store.events if e.kind == "head.log-level"]
    assert "layercake.api logs from debug on" in texts[0] and "as usual" in texts[1]


async def test_they_are_for_admins(world: World) -> None:
    body = {"name": "layercake.api", "level": "debug"}
    async with served(world.head, local=False) as client:
        for role, status in (("viewer", 403), ("operator", 403), ("admin", 200)):
            headers = await token(world.head, role, role)
            answer = await client.post("/v1/log-levels", json=body, headers=headers)
            assert answer.status == status, role
    world.head.modules.log_levels.reset()


async def test_what_is_audited_is_no_part_of_it(levels: LogLevels) -> None:
    assert AUDIT not in levels.names()
    with pytest.raises(NotFound, match="no such part"):
        levels.set(AUDIT, "debug")
    with pytest.raises(NotFound) as error:
        levels.set("layercake.rols", "debug")
    assert "layercake.rolls" in error.value.hint


def test_a_module_is_told_and_once_more_when_it_starts_anew() -> None:
    host: Any = Host()
    levels = LogLevels(host, ["pxe", "powerman"])
    levels.set("pxe", "debug")
    levels.resend("pxe")
    levels.resend("powerman")
    levels.set("pxe", "default")
    levels.resend("pxe")
    assert host.sent == [("pxe", "debug"), ("pxe", "debug"), ("pxe", "info")]


@pytest.mark.parametrize("level", ["debug", "error"])
def test_a_module_s_own_code_logs_so_and_libraries_as_before(level: str) -> None:
    names = ("pxe", "layercake", "asyncio")
    before = [logging.getLogger(name).level for name in names]
    try:
        set_log_level(level, MODULE)
        set_log_level("shout", MODULE)
        ours, _, library = (logging.getLogger(name) for name in names)
        assert logging.getLogger("pxe.dhcp").isEnabledFor(logging.ERROR)
        assert ours.level == getattr(logging, level.upper())
        assert library.level == before[2]
    finally:
        for name, number in zip(names, before, strict=True):
            logging.getLogger(name).setLevel(number)
