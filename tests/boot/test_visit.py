"""A visit: for a short time the head itself may fetch what nodes boot, from its own address, and
never a script."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import Refused
from layercake.moduleapi.service import FakeLink
from pxe.http_server import HttpServer
from pxe.nodes import Nodes
from pxe.notes import Recorder
from pxe.settings import Settings
from pxe.state import BootState, Visit
from pxe.tftp_files import TftpFiles
from pxe.windows import Windows
from tests.boot.test_http import SCRIPT, fetch
from tests.support.clock import FakeClock

HEAD, OTHER = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def head(
    settings: Settings,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    unused_tcp_port: int,
) -> BootState:
    """A head at 127.0.0.1 without nodes, while a visit goes on for ten seconds."""
    conf = replace(
        settings, address=HEAD, http_port=unused_tcp_port, boot_dir=Path(files["boot_dir"])
    )
    windows = Windows()
    return BootState(
        conf, Nodes(), windows, Recorder(link, windows, clock), clock, Visit(clock() + 10.0)
    )


def test_tftp_is_open_to_the_head_itself_and_for_its_time_alone(
    head: BootState, clock: FakeClock
) -> None:
    assert TftpFiles(head).may_fetch(HEAD) == ""
    assert TftpFiles(head).may_fetch(OTHER)
    assert TftpFiles(head).own(HEAD, "node/52:54:00:00:01:01.cfg") is None, (
        "boot programs, and no node's own files"
    )
    clock.now += 10.0
    assert TftpFiles(head).may_fetch(HEAD)


def test_there_is_no_visit_before_one_was_asked_for(state: BootState) -> None:
    assert TftpFiles(state).may_fetch(state.settings.address)


async def test_http_gives_files_and_no_script(
    head: BootState, files: dict[str, Any], clock: FakeClock, link: FakeLink
) -> None:
    server = HttpServer(head, {"snponly.efi": Path(files["ipxe_dir"], "snponly.efi")})
    await server.open()
    try:
        status, body, _ = await fetch(head, "/boot/vmlinuz")
        assert (status, body) == (200, Path(files["boot_dir"], "vmlinuz").read_bytes())
        assert (await fetch(head, SCRIPT))[0] == 403
        clock.now += 11.0
        assert (await fetch(head, "/boot/vmlinuz"))[0] == 403
    finally:
        await server.close()
    assert not link.events, "the head's own look is no step of any node"
    with pytest.raises(Refused):
        head.booting(HEAD)
