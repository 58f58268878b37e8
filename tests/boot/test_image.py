"""The FAT image of UEFI HTTP Boot under Secure Boot: what other programs read of it, and who is
given it."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.service import FakeLink
from layercake.modules.notifier import NotifiedNode
from powerman.module import record as power_record
from pxe.dhcp.decision import Common, decide
from pxe.http_server import HttpServer
from pxe.inventory import Boot
from pxe.module import offers
from pxe.nodes import Node, Nodes
from pxe.notes import Recorder
from pxe.packets.dhcp import BOOT_FILE, VENDOR_CLASS, MessageType
from pxe.paths import fat, grub, image
from pxe.paths.boot_spec import BootSpec
from pxe.settings import BootSettings, Settings
from pxe.state import BootState
from pxe.windows import Windows
from tests.boot.conftest import MAC, NODE, TOKEN
from tests.boot.test_dhcp_decision import HTTP_UEFI, packet
from tests.support.clock import FakeClock
from tests.support.site import site

URL = "/boot/52-54-00-00-01-01.img"


@pytest.fixture
def signed(tmp_path: Path) -> dict[str, Path]:
    """Signed programs by their names in the volume."""
    for place in (grub.FILES["shimx64.efi"], "grub/x86_64-efi-signed/gcdx64.efi.signed"):
        path = tmp_path / "lib" / place
        path.parent.mkdir(parents=True)
        path.write_bytes(place.encode() * 999)
    return image.programs(tmp_path / "lib")


def built(pieces: tuple[fat.Piece, ...], contents: dict[str, bytes | Path], out: Path) -> Path:
    """The volume in a file."""
    with out.open("wb") as file:
        for piece in pieces:
            content = contents[piece.name] if piece.name else piece.made
            data = content if isinstance(content, bytes) else content.read_bytes()
            assert len(data) == piece.size
            file.write(data)
    return out


def read(volume: Path, name: str) -> bytes:
    """A file, as mtools read it."""
    return subprocess.run(
        ["mcopy", "-i", volume, f"::/{name}", "-"], capture_output=True, check=True
    ).stdout


@pytest.mark.parametrize("megabytes", [0, 5, 30, 70], ids=lambda n: f"{n} MB")
def test_mtools_read_what_was_put_in(tmp_path: Path, megabytes: int) -> None:
    big = bytes(range(256)) * (megabytes << 12) + b"end"
    contents: dict[str, bytes | Path] = {
        "EFI/BOOT/BOOTX64.EFI": b"shim",
        "EFI/BOOT/grubx64.efi": b"g" * 4096,
        "boot/grub/grub.cfg": b"",
        "vmlinuz": big,
        "x.y": b"x",
    }
    volume = built(
        fat.volume({n: len(c) for n, c in contents.items() if isinstance(c, bytes)}),
        contents,
        tmp_path / "v.img",
    )
    for name, content in contents.items():
        assert read(volume, name) == content
    listed = subprocess.run(
        ["mdir", "-/", "-b", "-i", volume, "::"], capture_output=True, text=True, check=True
    ).stdout
    assert {line[3:].upper().rstrip("/") for line in listed.split()} >= {
        name.upper() for name in contents
    }
    said = subprocess.run(
        ["minfo", "-i", volume, "::"], capture_output=True, text=True, check=True
    ).stdout
    assert 'disk type="FAT16   "' in said
    assert volume.stat().st_size < len(big) + (3 << 20), "little is sent that is not wanted"


@pytest.mark.parametrize("name", ["much-too-long", "a.conf", "", "a b", "ümlaut", "a.b.c"])
def test_a_name_that_fat_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(OperationFailed, match="no short name"):
        fat.short(name)


def test_more_than_a_volume_holds_is_refused() -> None:
    assert sum(p.size for p in fat.volume({"vmlinuz": 1 << 30})) > 1 << 30
    with pytest.raises(OperationFailed, match="do not fit"):
        fat.volume({"vmlinuz": 4 << 30})


def test_what_is_in_it(tmp_path: Path, signed: dict[str, Path]) -> None:
    for name in ("vmlinuz", "hardware.img", "minos.img"):
        (tmp_path / name).write_bytes(name.encode() * 77777)
    pieces, files = image.render(
        BootSpec("n1", "set", ("hardware.img", "minos.img"), "layercake.node=1 quiet"),
        signed,
        tmp_path,
    )
    volume = built(pieces, files, tmp_path / "v.img")
    said = read(volume, "boot/grub/grub.cfg").decode()
    assert (
        "if linux /vmlinuz layercake.node=1 quiet; then" in said
        and "if initrd /hardware.img /minos.img; then" in said
    )
    for name, path in signed.items():
        assert read(volume, name) == path.read_bytes()
    assert read(volume, "minos.img") == (tmp_path / "minos.img").read_bytes()
    (tmp_path / "minos.img").unlink()
    with pytest.raises(OSError, match=r"minos\.img"):
        image.render(BootSpec("n1", "set", ("minos.img",), ""), signed, tmp_path)


def test_without_the_packages_there_is_none(tmp_path: Path, signed: dict[str, Path]) -> None:
    next(iter(signed.values())).unlink()
    assert image.programs(tmp_path / "lib") == {}


# -- who is given it


@pytest.fixture
async def web(
    settings: Settings,
    node: Node,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    signed: dict[str, Path],
    unused_tcp_port: int,
) -> AsyncIterator[BootState]:
    conf = dataclasses.replace(
        settings, address="127.0.0.1", http_port=unused_tcp_port, boot_dir=Path(files["boot_dir"])
    )
    nodes, windows = Nodes(), Windows()
    nodes.update(dataclasses.replace(node, ip="127.0.0.1", secure_boot=True))
    windows.arm(NODE, TOKEN, 100.0, clock())
    windows.asked(NODE, MAC)
    state = BootState(conf, nodes, windows, Recorder(link, windows, clock), clock)
    server = HttpServer(
        state, {"snponly.efi": Path(files["ipxe_dir"], "snponly.efi")}, signed, lambda: 1.8e9
    )
    await server.open()
    yield state
    await server.close()


async def fetch(state: BootState, path: str = URL, method: str = "GET") -> tuple[int, bytes, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{state.settings.http_port}{path}") as response,
    ):
        return response.status, await response.read(), response.headers


async def test_a_node_is_given_its_own_once_and_each_step_is_seen(
    web: BootState, link: FakeLink, tmp_path: Path, files: dict[str, Any]
) -> None:
    status, _, headers = await fetch(web, method="HEAD")
    assert (
        status == 200 and headers["Content-Type"] == "application/vnd.efi-img" and not link.events
    )
    status, body, again = await fetch(web)
    assert (status, len(body), again["Content-Length"]) == (
        200,
        int(headers["Content-Length"]),
        headers["Content-Length"],
    )
    (tmp_path / "v.img").write_bytes(body)
    assert (
        f"layercake.token={TOKEN} layercake.time=1800000000"
        in read(tmp_path / "v.img", "boot/grub/grub.cfg").decode()
    )
    for name in ("vmlinuz", "minos.img"):
        assert read(tmp_path / "v.img", name) == Path(files["boot_dir"], name).read_bytes()
    assert [(e[1], e[4]["file"]) for e in link.events] == [
        ("boot.nbp-sent", "BOOTX64.EFI"),
        ("boot.nbp-sent", "grubx64.efi"),
        ("boot.script-sent", "boot script"),
        ("boot.kernel-sent", "vmlinuz"),
        ("boot.initrd-sent", "minos.img"),
    ]
    assert TOKEN not in str(link.events)
    assert (await fetch(web))[0] == 403, "one script for one window"
    assert [e[1] for e in link.events][-1] == "boot.script-refused"


async def test_nobody_else_is_given_it(web: BootState, node: Node, clock: FakeClock) -> None:
    assert (await fetch(web, "/boot/52-54-00-00-01-99.img"))[0] == 403, "another node's"
    assert (await fetch(web, "/boot/x.img"))[0] == 404
    web.windows.forget(NODE)
    assert (await fetch(web))[0] == 403, "no boot is wanted"
    web.windows.arm(NODE, TOKEN, 100.0, clock())
    assert (await fetch(web))[0] == 403, "that card has asked for no address"
    web.nodes.update(node)
    assert (await fetch(web))[0] == 403, "the address is nobody's"


async def test_a_file_that_is_missing_costs_no_script(
    web: BootState, link: FakeLink, files: dict[str, Any]
) -> None:
    kernel = Path(files["boot_dir"], "vmlinuz")
    kept = kernel.read_bytes()
    kernel.unlink()
    assert (await fetch(web))[0] == 404 and [e[1] for e in link.events] == ["boot.file-missing"]
    kernel.write_bytes(kept)
    assert (await fetch(web))[0] == 200


def test_firmware_is_offered_it_by_http_boot(
    settings: Settings, node: Node, clock: FakeClock
) -> None:
    nodes, windows = Nodes(), Windows()
    nodes.update(dataclasses.replace(node, secure_boot=True))
    windows.arm(NODE, TOKEN, 100.0, clock())
    asks = packet(MessageType.DISCOVER, HTTP_UEFI)
    reply = decide(asks, nodes, windows, Common(settings, signed=True), clock()).reply
    assert reply is not None and reply.options[VENDOR_CLASS] == b"HTTPClient"
    assert reply.options[BOOT_FILE].decode() == f"{settings.http_base}/52-54-00-00-01-01.img"


@pytest.mark.parametrize(
    ("secure_boot", "file"), [(False, "snponly.efi"), (True, "52-54-00-00-01-01.img")]
)
def test_powerman_is_told_by_which_uri_a_node_boots(secure_boot: bool, file: str) -> None:
    facts = NotifiedNode(
        "id", "n1", (MAC, "52:54:00:00:01:02"), "10.99.0.11", "x86_64", "uefi", "set"
    )
    offered = offers(facts, Boot(secure_boot=secure_boot), BootSettings(http_port=81), site())
    assert (
        offered["boot-uri"] == f"http://10.99.0.1:81/boot/{file}"
        and ("no-medium" in offered) is secure_boot
    )
    told = power_record(dataclasses.replace(facts, offers=offered), None, lambda secret: "")
    assert told["boot_uri"] == offered["boot-uri"] and told["no_medium"] == offered.get(
        "no-medium", ""
    )
