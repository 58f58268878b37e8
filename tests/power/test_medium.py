"""Boots that a BMC is told of: who may fetch the boot medium, how it gets into a BMC's drive and
out again, the URI of UEFI HTTP Boot, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from virt.firmware.varstore.edk2 import Edk2VarStore
from vrack.rack import Rack

from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import Unsupported
from powerman.inventory import complete
from powerman.medium import FILE, MediumServer, is_ours
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings
from tests.support.fake_bmc import FakeDrive
from tests.support.in_netns import in_netns
from tests.support.miniredfish import MiniRedfish, drive
from tests.support.site import site

IMAGE = bytes(range(256)) * 4096
HERE = "https://127.0.0.1:8000"
URL = "http://192.0.2.9:8445/media/TICKET/layercake.iso"
BOOT_URI = "http://10.99.0.1:8080/boot/snponly.efi"
BMC = {"driver": "redfish", "address": "https://127.0.0.1:9", "boot": "media"}


def record(**bmc: Any) -> dict[str, Any]:
    """A UEFI node that boots by media."""
    return {
        "name": "n1",
        "firmware": "uefi",
        "bmc": {**BMC, "username": "admin", "password": "pw", **bmc},
    }


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The boot medium."""
    path = tmp_path / FILE
    path.write_bytes(IMAGE)
    return path


@pytest.fixture
async def medium_server(image: Path) -> AsyncIterator[MediumServer]:
    medium_server = MediumServer(image, 0)
    yield medium_server
    await medium_server.close()


async def get(url: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """(status, body, headers); (0, ...) if nobody listens."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers) as response,
        ):
            return response.status, await response.read(), dict(response.headers)
    except aiohttp.ClientConnectionError:
        return 0, b"", {}


# -- who may fetch it


async def test_the_medium_is_had_with_its_ticket_only(medium_server: MediumServer) -> None:
    told: list[str] = []
    url = await medium_server.lend("n1", HERE, told.append)
    assert url.endswith("/layercake.iso") and is_ours(url) and not told
    assert (await get(url, "HEAD"))[0] == 200 and not told
    assert (await get(url))[:2] == (200, IMAGE)
    assert (await get(url, Range="bytes=2048-4095"))[:2] == (206, IMAGE[2048:4096])
    assert told == ["127.0.0.1 fetches the boot medium"]
    base = url.partition("/media/")[0]
    for wrong in (
        "/",
        "/media/",
        "/media//layercake.iso",
        f"/media/{'A' * 22}/layercake.iso",
        "/media/x/../../etc/passwd",
        url.removeprefix(base) + "/x",
    ):
        assert (await get(base + wrong))[:2] == (404, b"no such medium\n"), wrong
    assert (await get(url, "POST"))[0] == 404


async def test_the_socket_is_open_while_a_ticket_is_out(medium_server: MediumServer) -> None:
    first, second = (
        await medium_server.lend("n1", HERE, list[str]().append),
        await medium_server.lend("n2", HERE, list[str]().append),
    )
    assert first.split("/media/")[0] == second.split("/media/")[0] and first != second
    await medium_server.give_back("n1")
    assert (await get(first))[0] == 404 and (await get(second))[0] == 200
    again = await medium_server.lend("n2", HERE, list[str]().append)
    assert again != second and (await get(second))[0] == 404 and (await get(again))[0] == 200
    await medium_server.give_back("n2")
    assert (await get(again))[0] == 0 and medium_server.ticket("n2") == ""


async def test_a_bmc_that_there_is_no_way_to_is_said(medium_server: MediumServer) -> None:
    with pytest.raises(Unreachable, match=r"cannot reach the BMC at https://nobody\.invalid"):
        await medium_server.lend("n3", "https://nobody.invalid", list[str]().append)


async def test_without_a_medium_it_is_said_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there") as caught:
        await MediumServer(tmp_path / FILE, 0).lend("n1", HERE, list[str]().append)
    assert "layercake boot-media" in caught.value.hint


async def test_a_port_that_is_taken_is_said(image: Path, medium_server: MediumServer) -> None:
    port = int(
        (await medium_server.lend("n1", HERE, list[str]().append)).split(":")[2].partition("/")[0]
    )
    other = MediumServer(image, port)
    with pytest.raises(OperationFailed, match=f"on 127.0.0.1 port {port}") as caught:
        await other.lend("n2", HERE, list[str]().append)
    assert "power.media_port" in caught.value.hint and other.ticket("n2") == ""


def test_what_is_ours() -> None:
    assert (
        is_ours(URL)
        and is_ours("layercake.iso")
        and is_ours("http://[fd00::1]:1/media/x/layercake.iso?a=b")
    )
    assert not any(
        map(
            is_ours,
            (
                None,
                "",
                3,
                "debian.iso",
                "http://h/layercake.iso/x",
                "http://h/?layercake.iso",
                "http://[x",
            ),
        )
    )


def test_ipmi_has_no_virtual_drive() -> None:
    with pytest.raises(Mistake, match="is for driver redfish"):
        complete({"driver": "ipmi", "address": "10.1.0.1", "boot": "media"})
    with pytest.raises(InputError, match="its firmware is not uefi"):
        BmcSpec.from_record("n1", {**record(boot="uri"), "firmware": "bios"})
    assert (
        complete({"driver": "ipmi", "address": "10.1.0.1", "boot": "network"})["boot"] == "network"
    )
    with pytest.raises(InputError, match="which ipmi does not do"):
        BmcSpec.from_record("n1", record(driver="ipmi"))


# -- the step power-on


@pytest.fixture
async def media(world: Any, image: Path) -> Any:
    """A world whose n1 boots by media."""
    world.service.medium_server = MediumServer(image, 0)
    await world.service.node_changed("n1", record())
    world.driver = world.drivers["n1"]
    world.driver.drive = FakeDrive(world.driver)
    return world


async def test_the_medium_is_in_before_the_power_is_on_and_out_when_the_node_has_joined(
    media: Any,
) -> None:
    media.driver.drive.late = 2
    assert await media.mutate("power-on", timeout=90.0) == {"power": "ON"}
    assert media.driver.calls[:7] == [
        "state",
        "insert",
        "holds",
        "holds",
        "holds",
        "boot_medium",
        "boots_as_told",
    ]
    url = media.driver.drive.url
    assert (await get(url))[0] == 200
    await media.service.node_state("n1", {"power": "ON", "boot": "WAIT"})
    assert media.driver.drive.url == url
    for _ in range(2):
        await media.service.node_state("n1", {"power": "ON", "boot": "INIT"})
        await settled(media)
    assert (
        media.driver.drive.url == ""
        and media.driver.calls.count("eject") == 1
        and (await get(url))[0] == 0
    )
    assert [t.partition(" ")[0] for t in media.events("power.medium")] == [
        "the",
        "127.0.0.1",
        "the",
    ]
    ticket = url.split("/")[4]
    assert ticket not in repr(media.link.events)


async def settled(world: Any) -> None:
    """What node_state began is done."""
    await asyncio.gather(
        *[n.ejecting for n in world.service.nodes.values() if n.ejecting is not None]
    )


async def test_a_boot_that_failed_leaves_no_medium_in(media: Any) -> None:
    await media.mutate("power-on", timeout=90.0)
    await media.service.node_state("n1", {"power": "HANG", "boot": "UNKNOWN"})
    assert media.driver.drive.url
    await media.service.node_state("n1", {"power": "OFF", "boot": "UNKNOWN"})
    await settled(media)
    assert not media.driver.drive.url and not media.service.medium_server.ticket("n1")


async def test_a_medium_that_was_put_in_again_meanwhile_stays(media: Any) -> None:
    await media.mutate("power-on", timeout=90.0)
    bmc = media.service.nodes["n1"].bmc
    async with bmc.turn(1.0):
        await media.service.node_state("n1", {"power": "OFF", "boot": "UNKNOWN"})
        media.driver.drive.url = await media.service.medium_server.lend(
            "n1", HERE, list[str]().append
        )
    await settled(media)
    assert (
        media.driver.drive.url
        and "eject" not in media.driver.calls
        and (await get(media.driver.drive.url))[0] == 200
    )


async def test_a_new_process_takes_out_what_the_one_before_it_put_in(media: Any) -> None:
    media.driver.drive.url = URL
    await media.service.node_state("n1", {"power": "ON", "boot": "INIT"})
    await settled(media)
    assert not media.driver.drive.url


async def test_one_that_cannot_be_taken_out_is_told_of(media: Any) -> None:
    await media.mutate("power-on", timeout=90.0)
    media.driver.answers = False
    await media.service.node_state("n1", {"power": "ON", "boot": "INIT"})
    await settled(media)
    assert len(media.events("power.medium-stays")) == 1 and not media.service.medium_server.ticket(
        "n1"
    )


async def test_a_machine_whose_medium_does_not_go_in_stays_off(media: Any) -> None:
    media.driver.drive.late = 10_000
    with pytest.raises(OperationFailed, match="the drive is still empty") as caught:
        await media.mutate("power-on", timeout=90.0)
    assert (
        "can the BMC reach http://127.0.0.1:" in caught.value.hint
        and "/media/" not in caught.value.hint
    )
    assert not media.driver.drive.url and not media.service.medium_server.ticket("n1")
    media.driver.drive.late, media.driver.boot_device_works = 0, False
    with pytest.raises(Unsupported, match="cannot boot from the virtual drive"):
        await media.mutate("power-on", timeout=90.0)
    assert not media.driver.drive.url, "what is of no use is taken out again"
    media.driver.drive = None
    with pytest.raises(Unsupported, match="no virtual drives"):
        await media.mutate("power-on", timeout=90.0)
    assert "on" not in media.driver.calls and not media.service.medium_server.ticket("n1")


async def test_a_bmc_that_does_not_show_what_it_was_told_is_tried_and_told_of(media: Any) -> None:
    media.driver.forgets = 99
    assert await media.mutate("power-on", timeout=90.0) == {"power": "ON"}
    (text,) = media.events("power.boot-device")
    assert "may not be by media" in text


async def test_a_machine_that_does_not_boot_by_the_medium_is_not_given_it(media: Any) -> None:
    await media.service.node_changed(
        "n1", {**record(), "no_medium": "the node has Secure Boot, and no iPXE is signed"}
    )
    with pytest.raises(
        Unsupported,
        match=r"cannot insert the boot medium at https://127.*: the node has Secure Boot",
    ) as caught:
        await media.mutate("power-on", timeout=90.0)
    assert "bmc.boot: uri" in caught.value.hint and "on" not in media.drivers["n1"].calls


async def test_the_uri_is_set_before_the_power_is_on(media: Any) -> None:
    await media.service.node_changed("n1", record(boot="uri"))
    with pytest.raises(OperationFailed, match="nothing says which"):
        await media.mutate("power-on", timeout=90.0)
    await media.service.node_changed("n1", {**record(boot="uri"), "boot_uri": BOOT_URI})
    driver = media.drivers["n1"]
    assert await media.mutate("power-on", timeout=90.0) == {"power": "ON"}
    assert driver.calls[:4] == ["state", f"boot_uri {BOOT_URI}", "boots_as_told", "on"]


async def test_a_machine_whose_uri_cannot_be_set_stays_off(media: Any) -> None:
    await media.service.node_changed("n1", {**record(boot="uri"), "boot_uri": BOOT_URI})
    driver = media.drivers["n1"]
    driver.boot_device_works = False
    with pytest.raises(Unsupported, match="cannot set the URI to boot by"):
        await media.mutate("power-on", timeout=90.0)
    assert "on" not in driver.calls


# -- what BMCs have and say


@contextlib.asynccontextmanager
async def driver_of(bmc: MiniRedfish) -> AsyncIterator[RedfishDriver]:
    web = Web()
    driver = RedfishDriver(BmcSpec.from_record("n1", record(address=await bmc.open())), web)
    try:
        yield driver
    finally:
        await driver.close()
        await web.close()
        await bmc.close()


@pytest.mark.parametrize(
    ("drives", "owner", "target", "name"),
    [
        ({"2": drive(["USBStick"]), "1": drive(["CD", "DVD"])}, "Systems", "Cd", "1"),
        ({"1": drive(["Floppy", "USBStick"])}, "Systems", "Usb", "1"),
        (
            {"1": drive(["CD"], Inserted=True, Image="http://h/debian.iso"), "2": drive(["DVD"])},
            "Systems",
            "Cd",
            "2",
        ),
        ({"1": drive(["CD"], Inserted=True, Image=URL), "2": drive(["CD"])}, "Systems", "Cd", "1"),
        ({"1": drive(["CD"], Inserted=None)}, "Managers", "Cd", "1"),
    ],
    ids=[
        "a CD rather than a stick",
        "a stick",
        "not one that holds another's",
        "ours is replaced",
        "at an old service's manager",
    ],
)
async def test_the_drive_that_is_taken(
    drives: dict[str, Any], owner: str, target: str, name: str
) -> None:
    bmc, url = MiniRedfish(drives, owner), URL.replace("TICKET", "T2")
    async with driver_of(bmc) as driver:
        assert await driver.drive.insert(url) == name
        assert drives[name]["Image"] == url and await driver.drive.holds()
        await driver.drive.boot()
        assert (bmc.boot["BootSourceOverrideTarget"], bmc.boot["BootSourceOverrideEnabled"]) == (
            target,
            "Once",
        )
        others = {n: d["Image"] for n, d in drives.items() if n != name}
        assert await driver.drive.eject() and not drives[name]["Inserted"]
        assert not await driver.drive.eject() and not await driver.drive.holds()
        assert {n: d["Image"] for n, d in drives.items() if n != name} == others


@pytest.mark.parametrize(
    ("bmc", "error", "why"),
    [
        (MiniRedfish(), Unsupported, "it has no virtual drive"),
        (MiniRedfish({"1": drive(["Floppy"])}), Unsupported, "take no CD and no USB stick"),
        (
            MiniRedfish({"1": drive(["CD"], Inserted=True, Image="http://me:secret@h/debian.iso")}),
            OperationFailed,
            "debian.iso",
        ),
    ],
    ids=["no drive", "a floppy only", "another's medium"],
)
async def test_what_cannot_be_done_is_said_and_leaves_all_as_it_is(
    bmc: MiniRedfish, error: type[LayercakeError], why: str
) -> None:
    async with driver_of(bmc) as driver:
        for work in (lambda: driver.drive.insert(URL), driver.drive.boot):
            with pytest.raises(error, match=why) as caught:
                await work()
            said = str(caught.value)
            assert (
                said.startswith("cannot insert the boot medium at http://127.0.0.1")
                and "secret" not in said
            )
    assert not bmc.asked


async def test_a_bmc_that_cannot_boot_from_its_drive_says_so() -> None:
    async with driver_of(MiniRedfish({"1": drive(["CD"])}, targets=("Pxe", "Hdd"))) as driver:
        with pytest.raises(Unsupported, match="cannot boot from the virtual drive at http"):
            await driver.drive.boot()


@pytest.mark.parametrize(
    ("bmc", "why"),
    [
        (
            MiniRedfish(targets=("Pxe", "Cd"), more={"HttpBootUri": None}),
            "cannot set the URI to boot by at http",
        ),
        (MiniRedfish(), "HttpBootUri"),
    ],
    ids=["no UefiHttp", "no HttpBootUri"],
)
async def test_a_bmc_that_knows_no_uri_says_so(bmc: MiniRedfish, why: str) -> None:
    async with driver_of(bmc) as driver:
        with pytest.raises(Unsupported, match=why):
            await driver.boot_uri(BOOT_URI)
    assert not bmc.asked


async def test_the_uri_goes_with_its_target() -> None:
    bmc = MiniRedfish(more={"HttpBootUri": None})
    async with driver_of(bmc) as driver:
        await driver.boot_uri(BOOT_URI)
    assert bmc.boot == {
        "BootSourceOverrideTarget": "UefiHttp",
        "HttpBootUri": BOOT_URI,
        "BootSourceOverrideEnabled": "Once",
    }, "a mode that holds already is left out: many services refuse to be told it"


@pytest.mark.root
def test_a_real_bmc_has_the_firmware_boot_by_a_uri(bmcs: Rack) -> None:
    """As the variables of the firmware have it, which takes BootNext out again as it boots."""
    node, secrets = bmcs.nodes[1], bmcs.secrets
    assert secrets is not None
    login = {"password": secrets.password, "verify_tls": str(secrets.certificate)}
    bmc = record(address=f"https://{node.bmc_address}:8000", boot="uri", **login)

    async def body() -> None:
        service = PowerService(polls=False)
        await service.start(FakeLink(), site(), PowerSettings())
        try:
            await service.node_changed("n1", {**bmc, "boot_uri": BOOT_URI})
            assert await service.mutate(MutationRequest(1, "n1", "power-on", 1, 300.0, {})) == {
                "power": "ON"
            }
            assert bmcs.machine(1)["last_boot"] == "UefiHttp"
            await service.mutate(MutationRequest(2, "n1", "power-off", 1, 60.0, {}))
        finally:
            await service.stop()

    in_netns(bmcs.namespace, body)
    variables = Edk2VarStore(str(bmcs.node_directory(1) / "vars.fd")).get_varlist()
    assert (
        BOOT_URI.encode() in variables["Boot0099"].data and variables["BootNext"].data == b"\x99\0"
    )


@pytest.mark.root
def test_a_real_bmc_fetches_it_and_the_machine_has_it(
    bmcs: Rack, tmp_path: Path, image: Path
) -> None:
    """sushy-emulator downloads what is inserted, as BMCs do that keep a copy; the machine is
    started with that."""
    node, secrets = bmcs.nodes[1], bmcs.secrets
    assert secrets is not None

    async def body() -> None:
        service, link = PowerService(polls=False), FakeLink()
        await service.start(link, site(data_dir=str(tmp_path)), PowerSettings(media_port=0))
        try:
            await service.node_changed(
                "n1",
                record(
                    address=f"https://{node.bmc_address}:8000",
                    password=secrets.password,
                    verify_tls=str(secrets.certificate),
                ),
            )
            assert await service.mutate(MutationRequest(1, "n1", "power-on", 1, 300.0, {})) == {
                "power": "ON"
            }
            assert bmcs.machine(1)["last_boot"] == "Cd"
            argv = Path(f"/proc/{bmcs.machine(1)['pid']}/cmdline").read_bytes().decode().split("\0")
            (medium,) = [
                word.partition("file=")[2] for word in argv if word.startswith("if=none,id=medium")
            ]
            assert Path(medium).read_bytes() == IMAGE
            known = service.nodes["n1"]
            assert (
                known.bmc is not None
                and known.bmc.driver.drive is not None
                and await known.bmc.driver.drive.holds()
            )
            await service.node_state("n1", {"power": "ON", "boot": "INIT"})
            assert known.ejecting is not None
            await known.ejecting
            assert not await known.bmc.driver.drive.holds()
            assert [
                text.split()[1] for _, kind, text, *_ in link.events if kind == "power.medium"
            ] == ["fetches", "boot", "boot"]
            await service.mutate(MutationRequest(2, "n1", "power-off", 1, 60.0, {}))
        finally:
            await service.stop()

    in_netns(bmcs.namespace, body)
