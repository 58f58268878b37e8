"""Single modules of a boot set's kernel: which there are for devices, what each is, and what is not
given."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from layercake.kraken.errors import InputError, NotFound, OperationFailed
from minos.build import kernel, profiles, tree
from minos.build.drivers import HELD
from minos.build.drivers import Drivers as Shelf
from minos.build.kernel import Kernel
from minos.build.profiles import KNOWN

CACHE = Path.home() / ".cache/layercake"
RELEASE = os.uname().release
PLACES = {
    "i6300esb.ko": "kernel/drivers/watchdog",
    "watchdog.ko": "kernel/drivers/watchdog",
    "tg3.ko": "kernel/drivers/net",
    "libphy.ko": "kernel/drivers/net/phy",
    "bochs.ko": "kernel/drivers/gpu/drm/tiny",
    "nvme.ko": "kernel/drivers/nvme",
}
WATCHDOG, TG3 = (
    "pci:v00008086d000025ABsv00001AF4sd00001100bc08sc80i00",
    "pci:v000014E4d00001659sv0sd0bc02sc00i00",
)
BOCHS, NVME, BRIDGE = (
    "pci:v00001234d00001111sv00001AF4sd00001100bc03sc00i00",
    "pci:v00001B36d00000010sv0sd0bc01sc08i02",
    "pci:v00008086d000029C0sv00001AF4sd00001100bc06sc00i00",
)


def made_up(directory: Path) -> Path:
    """The modules.squashfs of a kernel of six real modules, one of them packed, and of firmware of
    one."""
    real, top = profiles.fetch(KNOWN["server"], CACHE), directory / "lib/modules" / RELEASE
    for name, place in PLACES.items():
        (top / place).mkdir(parents=True, exist_ok=True)
        (source,) = real.modules.rglob(name)
        shutil.copyfile(source, top / place / name)
    subprocess.run(
        ["zstd", "-q", "--rm", str(top / PLACES["watchdog.ko"] / "watchdog.ko")], check=True
    )
    for name in ("modules.builtin", "modules.order"):
        (top / name).touch()
    firmware = directory / "tg3.bin"
    firmware.write_bytes(b"microcode")
    file, _ = tree.pack(
        Kernel(RELEASE, real.image, top),
        {"tigon/tg3.bin": firmware, "other.bin": firmware},
        directory / "cache",
    )
    return file


@pytest.fixture(scope="module")
def squashfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def shelf(squashfs: Path) -> Shelf:
    """What the head gives; nvme is in hardware.img."""
    return Shelf(squashfs, RELEASE, ("nvme",))


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def original(name: str) -> bytes:
    (source,) = profiles.fetch(KNOWN["server"], CACHE).modules.rglob(f"{name}.ko")
    return source.read_bytes()


def test_a_module_is_found_with_what_it_needs_and_what_it_is(shelf: Shelf) -> None:
    said = shelf.wanted(RELEASE, [WATCHDOG, BRIDGE])
    assert said["devices"] == {WATCHDOG: ["i6300esb"]}, (
        "a device that no module is for costs nothing"
    )
    assert said["modules"]["i6300esb"]["needs"] == ["watchdog", "i6300esb"] and said[
        "modules"
    ].keys() == {"i6300esb", "watchdog"}
    for name, its in said["modules"].items():
        data = shelf.module(name)
        assert data == original(name), "unpacked, and with its signature"
        assert (its["digest"], its["size"]) == (digest(data), len(data))


def test_firmware_is_that_of_the_module_and_no_other(shelf: Shelf) -> None:
    said = shelf.wanted(RELEASE, [TG3])["modules"]["tg3"]
    assert said["firmware"] == {"tigon/tg3.bin": {"digest": digest(b"microcode"), "size": 9}}
    assert shelf.firmware("tigon/tg3.bin") == b"microcode"


def test_what_hardware_img_has_and_what_needs_a_person_is_not_given(shelf: Shelf) -> None:
    assert shelf.wanted(RELEASE, [NVME]) == {"devices": {}, "modules": {}}
    assert shelf.wanted(RELEASE, [BOCHS]) == {
        "devices": {BOCHS: ["bochs"]},
        "modules": {"bochs": {"held": HELD}},
    }


@pytest.mark.parametrize(
    "name", ["", "..", "no_such", "../modules.dep", "i6300esb.ko", "*", "a\nb"]
)
def test_hostile_names_name_nothing(shelf: Shelf, name: str) -> None:
    for read in (shelf.module, shelf.firmware):
        with pytest.raises(NotFound):
            read(name)


def test_another_kernel_is_refused_in_words(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot give drivers for kernel '6\.6\.6'"):
        shelf.wanted("6.6.6", [WATCHDOG])
    (tmp_path / "broken").write_bytes(b"no squashfs")
    with pytest.raises(OperationFailed, match="cannot read"):
        Shelf(tmp_path / "broken", RELEASE, ())


def test_a_module_that_cannot_be_described_does_not_take_the_others_along(
    squashfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minos.build.drivers._LIMIT", 20_000)
    said = Shelf(squashfs, RELEASE, ()).wanted(RELEASE, [WATCHDOG])["modules"]
    assert "digest" in said["i6300esb"] and "a node takes up to" in said["watchdog"]["error"]


def test_depmods_tables_of_a_whole_kernel_say_what_its_modules_say() -> None:
    real = profiles.fetch(KNOWN["server"], CACHE)
    file, _ = tree.pack(real, {}, CACHE)
    found = Shelf(file, real.release, ())
    for name in ("i6300esb", "sdhci_pci", "ftdi_sio", "st", "ses", "mlx5_core", "btrfs"):
        aliases = [glob.replace("*", "0") for glob in real.index[name].aliases if ":" in glob][:10]
        said = found.wanted(real.release, aliases)
        assert all(name in said["devices"][alias] for alias in aliases)
        if aliases:
            assert sorted(said["modules"][name]["needs"]) == sorted(kernel.order(real, (name,)))
