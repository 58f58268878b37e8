"""The original's seventh defect: DHCP ignores renewals; TFTP filename `../` escapes; boot files are
HTML-escaped."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from pxe.dhcp.decision import Common, Outcome, Way, decide
from pxe.nodes import Node
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.paths import ipxe
from pxe.paths.boot_spec import environment, spec_for
from pxe.settings import Settings
from pxe.state import BootState
from pxe.tftp_server import TftpServer
from tests.support.gates import Open


@pytest.mark.parametrize("flags", [0, 0x8000])
def test_defect_7_renewals_answered(state: BootState, flags: int) -> None:
    ip = socket.inet_aton("10.99.0.11")
    renewal = DhcpPacket(
        1,
        1,
        state.nodes.by_id("6b1f2a3c-0000-4000-8000-000000000001").macs[0] + bytes(10),  # type: ignore[union-attr]  # it is there
        {53: bytes([MessageType.REQUEST])},
        ciaddr=ip,
        flags=flags,
    )
    decision = decide(renewal, state.nodes, state.windows, Common(state.settings), 1.0)
    assert decision.outcome is Outcome.ACKED
    assert (decision.way, decision.address) == (Way.UNICAST, ip)
    assert decision.reply is not None
    assert (decision.reply.yiaddr, decision.reply.ciaddr) == (ip, ip)
    assert decision.reply.options[51] == (3600).to_bytes(4, "big")


ESCAPES = [
    b"../secret",
    b"/../secret",
    b"..\\secret",
    b"./snponly.efi",
    b"//snponly.efi",
    b"boot/../snponly.efi",
    b"/etc/passwd",
    b"secret",
    b"snponly.efi/../secret",
    b"snponly.efi\0.txt",
    b"SNPONLY.EFI",
    b"snponly.efi ",
    b"%2e%2e/secret",
    "snponly.ef\u0131".encode(),
    b"\xff\xfe",
    b"",
    b"/",
    b".",
    b"..",
    b"~root",
]


@pytest.mark.parametrize("name", ESCAPES)
async def test_defect_7_tftp_escape_refused(name: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    counters: Counter[str] = Counter()
    server = TftpServer(
        ("127.0.0.1", port), {"snponly.efi": b"program"}, Open(), counters, lambda: 0.0
    )
    before = Path.cwd()
    os.chdir(tmp_path)
    server.open()
    try:
        assert (await ask(port, name))[:2] == b"\0\5"
        assert await ask(port, b"snponly.efi") == b"\0\3\0\1program"
        assert await ask(port, b"/snponly.efi") == b"\0\3\0\1program"
    finally:
        server.close()
        os.chdir(before)
    assert counters["tftp.refused"] + counters["tftp.malformed"] == 1


async def ask(port: int, name: bytes) -> bytes:
    """The first packet that a read request for this name gets."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        await loop.sock_sendto(sock, b"\0\1" + name + b"\0octet\0", ("127.0.0.1", port))
        data, _ = await asyncio.wait_for(loop.sock_recvfrom(sock, 2048), 3.0)
        return data


def test_defect_7_boot_files_not_html_escaped(node: Node, settings: Settings) -> None:
    assert (
        environment().from_string("kernel {{ a }}").render(a="a&b <c> \"d\" 'e'")
        == "kernel a&b <c> \"d\" 'e'"
    )
    args = "root=UUID=0-1 ip=a:b:[fe80::1%eth0] dm=a+b,c~d@e*"
    made = spec_for(
        dataclasses.replace(node, kernel_args=args), node.macs[0], "one-use_token.42", settings, 0.0
    )
    script = ipxe.render(made, settings.http_base)
    assert args in script
    assert "&&" in script
    assert "&amp;" not in script
    assert "&#" not in script
