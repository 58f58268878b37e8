"""Consoles of Redfish services: by WebSocket where one is offered, and else what there is is
named."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from layercake.moduleapi.service import FakeLink
from powerman.driver import Unsupported
from powerman.redfish.console import console_path
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.console.conftest import until
from tests.support.miniredfish import SYSTEM, MiniRedfish
from tests.support.site import site


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (None, "offers none"),
        ({"MaxConcurrentSessions": 1}, "offers none"),
        ("x", "offers none"),
        (
            {"SSH": {"ServiceEnabled": True}, "IPMI": {}, "Telnet": {"ServiceEnabled": False}},
            "by IPMI and SSH only",
        ),
        ({"WebSocket": {"ServiceEnabled": False, "ConsoleURI": "/console0"}}, "offers none"),
        ({"WebSocket": {"ConsoleURI": "wss://evil.example/console0"}}, "offers none"),
        ({"WebSocket": {"ConsoleURI": "//evil.example/console0"}}, "offers none"),
    ],
)
def test_what_is_no_console_for_us_is_named(offered: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        console_path({"SerialConsole": offered}, "https://10.0.0.1")


class Console:
    """The other end of a service's WebSocket. It wants our login."""

    def __init__(self) -> None:
        self.typed, self.sockets = b"", list[web.WebSocketResponse]()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One session."""
        if (
            request.headers.get("Authorization")
            != "Basic " + base64.b64encode(b"admin:pw").decode()
        ):
            return web.Response(status=401)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                self.typed += message.data
        return socket


async def test_one_by_websocket_is_read_and_typed_to_and_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerman.console.consoles.again_s", lambda error, failures: 0.05)
    console, service, link = Console(), PowerService(polls=False), FakeLink()
    redfish = MiniRedfish(
        sockets={"/console0": console.serve},
        facts={"SerialConsole": {"WebSocket": {"ServiceEnabled": True, "ConsoleURI": "/console0"}}},
    )
    address = await redfish.open()
    await service.start(link, site(data_dir=str(tmp_path)), PowerSettings())
    try:
        bmc = {
            "driver": "redfish",
            "address": address,
            "username": "admin",
            "password": "pw",
            "system": SYSTEM,
        }
        await service.node_changed("n1", {"name": "n1", "firmware": "uefi", "bmc": bmc})
        await service.call("power.refresh", {"node": "n1"})
        kept = service.consoles.of("n1")
        await until("it is open", lambda: console.sockets and kept.state.value == "open")
        reader, _ = kept.attach("alice", write=True, take=False)
        await console.sockets[-1].send_bytes(b"login: \r\n")
        await until("it was heard", lambda: kept.readers.end)
        kept.write(reader, b"root\r")
        await until("it was typed", lambda: console.typed == b"root\r")
        with pytest.raises(Unsupported, match="no such thing"):
            kept.write(reader, b"", send_break=True)
        await console.sockets[0].close()
        await until("it is open again", lambda: len(console.sockets) == 2)
        await console.sockets[-1].send_str("again\r\n")
        async with asyncio.timeout(60):
            while (
                lines := [
                    text
                    for _, text in await service.consoles.tail("n1", 9)
                    if not text.startswith("---")
                ]
            ) != ["login:", "again"]:
                await asyncio.sleep(0.05)
        assert lines and not [
            kind for _, kind, *_ in link.events if kind.startswith("power.console")
        ]
        await console.sockets[-1].send_bytes(b"x" * (1 << 20))
        await until("it is opened anew after a MiB at once", lambda: len(console.sockets) == 3)
        assert not [text for _, text in await service.consoles.tail("n1", 9) if "x" * 99 in text]
    finally:
        await service.stop()
        await redfish.close()
