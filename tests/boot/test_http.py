"""Boot files over HTTP: ranges, HEAD, who may have what, and what is recorded. On loopback;
127.0.0.1 is the node."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from layercake.moduleapi.service import FakeLink
from pxe import events
from pxe.http_server import LIMITS, HttpServer
from pxe.nodes import Node, Nodes, mac_bytes
from pxe.notes import Note, Recorder
from pxe.settings import Settings
from pxe.state import BootState
from pxe.windows import AGAIN_AT_MOST, Step, Windows
from tests.support.clock import FakeClock

NODE = "6b1f2a3c-0000-4000-8000-000000000001"
TOKEN = "one-use_token.42"
MAC = "52:54:00:00:01:01"
SCRIPT = "/boot/52-54-00-00-01-01"


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    node: Node,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    port: int,
) -> AsyncIterator[BootState]:
    """The web server, for a node that boots."""
    conf = dataclasses.replace(
        settings, address="127.0.0.1", http_port=port, boot_dir=Path(files["boot_dir"])
    )
    nodes, windows = Nodes(), Windows()
    nodes.update(dataclasses.replace(node, ip="127.0.0.1"))
    windows.arm(NODE, TOKEN, 100.0, clock())
    windows.asked(NODE, MAC)
    state = BootState(conf, nodes, windows, Recorder(link, windows, clock), clock)
    server = HttpServer(state, {"snponly.efi": Path(files["ipxe_dir"], "snponly.efi")})
    await server.open()
    yield state
    await server.close()


@pytest.fixture
async def web(
    settings: Settings,
    node: Node,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    unused_tcp_port: int,
) -> AsyncIterator[BootState]:
    async with serving(settings, node, files, link, clock, unused_tcp_port) as state:
        yield state


async def fetch(
    state: BootState, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, f"http://127.0.0.1:{state.settings.http_port}{path}", headers=headers
        ) as response,
    ):
        return response.status, await response.read(), response.headers


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vmlinuz", "boot.kernel-sent"),
        ("minos.img", "boot.initrd-sent"),
        ("snponly.efi", "boot.nbp-sent"),
    ],
)
async def test_files_arrive_whole_and_are_recorded(
    web: BootState, files: dict[str, Any], link: FakeLink, name: str, kind: str
) -> None:
    want = Path(files["ipxe_dir" if name == "snponly.efi" else "boot_dir"], name).read_bytes()
    status, body, headers = await fetch(web, f"/boot/{name}")
    assert (status, body) == (200, want)
    assert headers["Content-Type"] == "application/octet-stream"
    assert [(e[0], e[1], e[4]) for e in link.events] == [
        (NODE, kind, {"file": name, "bytes": len(want), "seconds": 0.0})
    ]
    assert [s["kind"] for s in web.windows.report(NODE, web.clock())["steps"]] == [
        kind.replace("-sent", "-started"),
        kind,
    ]


async def test_a_boot_set_without_the_boot_cards_driver_is_said(
    web: BootState, files: dict[str, Any], link: FakeLink
) -> None:
    (Path(files["boot_dir"]) / "cards.json").write_text(
        '{"have": [], "lacking": {"8086:100e": ["e1000"]}}'
    )
    assert (await fetch(web, "/boot/vmlinuz?card=01:80:86:10:0e"))[0] == 200, (
        "it may be wrong: the boot goes on"
    )
    (said,) = [e[2] for e in link.events if e[1] == "boot.no-driver"]
    assert "its network card 8086:100e needs module e1000" in said
    assert "needs module e1000" in web.windows.why_stalled(NODE, 10.0, web.clock()), (
        "explain says so, too"
    )
    assert (await fetch(web, "/boot/vmlinuz?card=%24%7BnetX"))[0] == 200


async def test_a_boot_set_is_a_directory_of_its_own_and_no_way_out_of_it(
    web: BootState, files: dict[str, Any]
) -> None:
    (Path(files["boot_dir"]) / "second").mkdir()
    (Path(files["boot_dir"]) / "second" / "vmlinuz").write_bytes(b"another kernel")
    assert (await fetch(web, "/boot/second/vmlinuz"))[:2] == (200, b"another kernel")
    assert (await fetch(web, "/boot/second/minos.img"))[0] == 404, "it is not taken from elsewhere"
    for path in (
        "/boot/%2e%2e/vmlinuz",
        "/boot/..%2fboot/vmlinuz",
        "/boot/.hidden/vmlinuz",
        "/boot/no-such/vmlinuz",
    ):
        assert (await fetch(web, path))[0] in (403, 404)
    node = web.nodes.by_ip("127.0.0.1")
    assert node is not None
    web.nodes.update(dataclasses.replace(node, boot_set="second"))
    script = (await fetch(web, SCRIPT))[1].decode()
    assert (
        "/boot/second/vmlinuz?card=${netX/busid} initrd=minos.img" in script
        and "/boot/second/minos.img ||" in script
    )
    assert " layercake.boot=second " in script


async def test_a_range(web: BootState, files: dict[str, Any], link: FakeLink) -> None:
    want = Path(files["boot_dir"], "vmlinuz").read_bytes()
    status, body, headers = await fetch(web, "/boot/vmlinuz", Range="bytes=1000-1999")
    assert (status, body) == (206, want[1000:2000])
    assert headers["Content-Range"] == f"bytes 1000-1999/{len(want)}"
    assert link.events[0][4]["bytes"] == 1000
    assert (await fetch(web, "/boot/vmlinuz", Range="bytes=-5"))[1] == want[-5:]


async def test_a_range_beyond_the_end_is_no_step(web: BootState, link: FakeLink) -> None:
    assert (await fetch(web, "/boot/vmlinuz", Range="bytes=99999999-"))[0] == 416
    assert link.events == []


async def test_head_tells_the_size_and_is_no_step(web: BootState, link: FakeLink) -> None:
    status, body, headers = await fetch(web, "/boot/minos.img", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "1000001")
    assert (await fetch(web, SCRIPT, "HEAD"))[0] == 200
    assert link.events == []


async def test_the_script_has_the_token_and_is_for_its_own_node(
    web: BootState, node: Node, link: FakeLink
) -> None:
    status, body, headers = await fetch(web, SCRIPT)
    assert status == 200
    assert body.startswith(b"#!ipxe\n")
    assert f"layercake.token={TOKEN} ".encode() in body
    assert headers["Cache-Control"] == "no-store"
    assert [e[1] for e in link.events] == ["boot.script-sent"]
    assert TOKEN not in repr(link.events)
    other = dataclasses.replace(
        node, id="other", name="n2", macs=(bytes.fromhex("525400000102"),), ip="127.0.0.2"
    )
    web.nodes.update(other)
    web.windows.arm("other", "another-token", 100.0, web.clock())
    status, body, _ = await fetch(web, "/boot/52-54-00-00-01-02")
    assert status == 403
    assert b"another-token" not in body


async def test_who_did_not_ask_by_dhcp_gets_no_script(
    web: BootState, node: Node, link: FakeLink
) -> None:
    web.windows.arm(NODE, "another-token-of-it", 100.0, web.clock())
    status, body, _ = await fetch(web, SCRIPT)
    assert (status, b"token-of-it" in body) == (403, False)
    assert [e[1] for e in link.events] == ["boot.script-refused"]
    assert web.windows.armed(NODE, web.clock()), "the node itself still gets it"


async def test_a_script_is_sent_once_in_a_boot_and_a_second_request_ends_it(
    web: BootState, link: FakeLink
) -> None:
    window = web.windows.armed(NODE, web.clock())
    assert window is not None
    assert [(await fetch(web, SCRIPT))[0] for _ in range(3)] == [200, 403, 403]
    assert [e[1] for e in link.events].count("boot.script-refused") == 1
    assert window.over.is_set() and "asked for twice" in window.spoiled
    assert (await fetch(web, "/boot/minos.img"))[0] == 403, "nobody boots by this window any more"


def offer(mac: str = MAC) -> Note:
    """What is noted when a MAC address is offered something to boot."""
    return Note(NODE, events.OFFER_SENT, "offered", data={"mac": mac}, step=Step.OFFER)


async def test_a_machine_that_begins_anew_gets_the_same_script_again_a_few_times(
    web: BootState, link: FakeLink
) -> None:
    window = web.windows.armed(NODE, web.clock())
    assert window is not None

    async def script() -> tuple[int, bytes]:
        """But for the head's time, which goes on."""
        status, body, _ = await fetch(web, SCRIPT)
        return status, re.sub(rb"layercake\.time=\d+", b"", body)

    first = await script()
    for number in range(AGAIN_AT_MOST):
        web.recorder.note(offer())
        web.recorder.note(offer())  # iPXE asks too, when the firmware has
        assert await script() == first and window.again == number + 1, (
            "the second to join with its token is found out"
        )
        assert (await fetch(web, "/boot/vmlinuz"))[0] == 200
    assert "boot.begun-anew" in [e[1] for e in link.events] and not window.over.is_set()
    web.recorder.note(offer())
    status, body, _ = await fetch(web, SCRIPT)
    assert status == 403 and b"starts anew again and again" in body and window.over.is_set()


@pytest.mark.parametrize(
    "how",
    [
        "no DHCP since",
        "another card of the node",
        "another address",
        "fetches what the script names",
        "after the join",
    ],
)
async def test_no_stranger_gets_the_script_that_a_machine_has(
    web: BootState, node: Node, how: str
) -> None:
    other = "52:54:00:00:01:02"
    web.nodes.update(dataclasses.replace(node, ip="127.0.0.1", macs=(*node.macs, mac_bytes(other))))
    window = web.windows.armed(NODE, web.clock())
    assert window is not None and (await fetch(web, SCRIPT))[0] == 200
    path = SCRIPT
    if how == "another card of the node":
        web.recorder.note(offer(other))
        path = SCRIPT.replace(MAC.replace(":", "-"), other.replace(":", "-"))
    elif how == "another address":
        web.recorder.note(offer())
        web.nodes.update(dataclasses.replace(node, ip="127.0.0.9"))
    elif how == "fetches what the script names":
        web.recorder.note(offer())
        assert (await fetch(web, "/boot/vmlinuz"))[0] == 200
    elif how == "after the join":
        web.windows.state(NODE, {"boot": "INIT", "power": "ON"})
        web.recorder.note(offer())
    status, body, _ = await fetch(web, path)
    assert status == 403 and b"layercake.token" not in body
    spoils = how in ("no DHCP since", "another card of the node", "fetches what the script names")
    assert bool(window.spoiled) is spoils, (
        "who has the MAC address ends the boot of both, others cannot"
    )


async def test_firmware_that_asks_for_another_file_is_told_once_for_all(
    web: BootState, link: FakeLink, clock: FakeClock
) -> None:
    for name in (
        "pxelinux.0",
        "a" * 200,
        "%1b[31mred",
        *(f"pxelinux.cfg/{n:x}" for n in range(30)),
    ):
        assert (await fetch(web, f"/{name}"))[0] == 404
    (told,) = [e for e in link.events if e[1] == "boot.other-file"]
    assert (
        told[3] == "warning"
        and "'/pxelinux.0'" in told[2]
        and "which it was not offered" in told[2]
    )
    clock.now += 31
    assert (await fetch(web, "/boot/again"))[0] == 404
    _, told = [e for e in link.events if e[1] == "boot.other-file"]
    assert (
        len(told[4]["files"]) == 8
        and len(told[2]) < 900
        and "\x1b[31mred" not in told[2]
        and r"\x1b[31mred" in told[2]
    )
    web.windows.disarm(NODE)
    assert (await fetch(web, "/pxelinux.0"))[0] == 404 and web.recorder.counters[
        "fetch.other-file"
    ] == 34


async def test_who_asks_for_a_script_that_a_node_has_joined_with_is_told_of(
    web: BootState, link: FakeLink
) -> None:
    assert (await fetch(web, SCRIPT))[0] == 200
    web.windows.state(NODE, {"boot": "INIT", "power": "ON"})
    assert (await fetch(web, "/boot/52-54-00-00-01-02"))[0] == 403
    assert "boot.script-disputed" not in [e[1] for e in link.events], (
        "who never asked by DHCP says nothing about it"
    )
    assert (await fetch(web, SCRIPT))[0] == 403
    assert [e[1] for e in link.events].count("boot.script-disputed") == 1


@pytest.mark.parametrize("path", [SCRIPT, "/boot/vmlinuz", "/boot/minos.img", "/boot/snponly.efi"])
async def test_nothing_for_a_node_that_nobody_wants_booted(
    web: BootState, link: FakeLink, path: str
) -> None:
    web.windows.disarm(NODE)
    status, body, _ = await fetch(web, path)
    assert (status, body) == (403, b"cannot serve this node: no boot of it is wanted now\n")
    assert [e[1] for e in link.events] == ["boot.ignored"]


async def test_nothing_for_a_stranger(web: BootState) -> None:
    web.nodes.remove(NODE)
    assert (await fetch(web, "/boot/vmlinuz"))[0] == 403
    assert (await fetch(web, SCRIPT))[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/boot/",
        "/boot/x",
        "/boot/..%2f..%2fetc%2fpasswd",
        "/boot/../boot/x",
        "/boot/vmlinuz/x",
        "/boot/%00",
        "/etc/passwd",
        "/boot/52-54-00-00-01-zz",
    ],
)
async def test_other_paths_are_not_there(web: BootState, path: str) -> None:
    assert (await fetch(web, path))[0] == 404


async def test_only_reading(web: BootState) -> None:
    assert (await fetch(web, "/boot/vmlinuz", "PUT"))[0] == 405
    assert (await fetch(web, SCRIPT, "POST"))[0] == 405


async def test_a_missing_file_is_told(
    web: BootState, files: dict[str, Any], link: FakeLink
) -> None:
    Path(files["boot_dir"], "minos.img").unlink()
    assert (await fetch(web, "/boot/minos.img"))[0] == 404
    assert [(e[1], e[3]) for e in link.events] == [("boot.file-missing", "error")]


async def test_a_record_that_no_script_can_be_made_of(web: BootState, node: Node) -> None:
    web.nodes.update(dataclasses.replace(node, ip="127.0.0.1", kernel_args="${x}"))
    status, body, _ = await fetch(web, SCRIPT)
    assert status == 500
    assert body.startswith(b"cannot write boot script of n1: kernel_args")


async def test_a_client_that_goes_away_in_the_middle_is_told(
    web: BootState, files: dict[str, Any], link: FakeLink
) -> None:
    with Path(files["boot_dir"], "minos.img").open("ab") as image:
        image.truncate(200 << 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.settings.http_port)
    writer.write(b"GET /boot/minos.img HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readexactly(4096)
    writer.transport.abort()
    for _ in range(500):
        if link.events:
            break
        await asyncio.sleep(0.01)
    assert [e[1] for e in link.events] == ["boot.transfer-broken"]


async def test_idle_and_slow_strangers_keep_no_node_from_its_files(
    web: BootState, files: dict[str, Any]
) -> None:
    """Connections cost nothing, and there was no end to them, nor to a request's head."""
    idle = []
    for number in range(200):
        address = "127.0.0.2" if number % 5 else "127.0.0.1", 0  # also from the node's own
        idle.append(
            await asyncio.open_connection("127.0.0.1", web.settings.http_port, local_addr=address)
        )
        idle[-1][1].write(b"GET /boot/vmlinuz HTTP/1.1\r\nX:" if number % 4 else b"")
    status, body, _ = await fetch(web, "/boot/vmlinuz")
    assert (status, body) == (200, Path(files["boot_dir"], "vmlinuz").read_bytes())
    await asyncio.sleep(0)
    assert (
        sum(not reader.at_eof() and reader.exception() is None for reader, _ in idle)
        <= 2 * LIMITS.each
    )
    for _, writer in idle:
        writer.transport.abort()


async def test_requests_for_boot_files_are_counted_by_their_answers(web: BootState) -> None:
    counters = web.recorder.counters
    assert counters["http.2xx"] == counters["http.4xx"] == 0
    async with aiohttp.ClientSession(f"http://127.0.0.1:{web.settings.http_port}") as client:
        for path in ("/boot/52-54-00-00-01-01", "/boot/52-54-00-00-01-02", "/nothing"):
            async with client.get(path) as answer:
                await answer.read()
    assert counters["http.2xx"] == 1, "out of hand"
    assert counters["http.4xx"] == 2
