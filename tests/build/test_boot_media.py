"""The image of a USB stick: what is on it, read by other programs, and what is said when it cannot
be made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from layercake.kraken.errors import InputError
from minos.build import media

IPXE = Path("/usr/lib/ipxe")


def test_it_is_a_disk_that_bios_and_uefi_boot(tmp_path: Path) -> None:
    image = tmp_path / "boot.img"
    image.write_bytes(b"what was there before")
    assert (
        media.write(image, IPXE)
        == image.stat().st_size
        == (media.START + media.SECTORS) * media.SECTOR
    )
    done = subprocess.run(
        ["sfdisk", "--json", str(image)], capture_output=True, text=True, check=True
    )
    (partition,) = json.loads(done.stdout)["partitiontable"]["partitions"]
    assert (partition["start"], partition["size"], partition["bootable"]) == (
        media.START,
        media.SECTORS,
        True,
    )
    for name, file in (("EFI/BOOT/BOOTX64.EFI", "ipxe.efi"), ("ipxe.lkrn", "ipxe.lkrn")):
        found = subprocess.run(
            ["mcopy", "-i", f"{image}@@1M", f"::/{name}", "-"], capture_output=True, check=True
        ).stdout
        assert found == (IPXE / file).read_bytes()
    assert image.read_bytes()[:440].rstrip(b"\0") and image.read_bytes()[510:512] == b"\x55\xaa"
    assert [p.name for p in tmp_path.iterdir()] == ["boot.img"]


def test_it_is_a_cd_that_bios_and_uefi_boot(tmp_path: Path) -> None:
    """As firmware finds its way (El Torito 1.0, figure 1): volume descriptors, boot catalog, what
    the entries lead to."""
    image = tmp_path / "boot.img"
    media.write(image, IPXE)
    said = subprocess.run(["blkid", "-p", image], capture_output=True, text=True, check=True).stdout
    assert 'TYPE="iso9660"' in said and 'BOOT_SYSTEM_ID="EL TORITO SPECIFICATION"' in said
    data = image.read_bytes()
    sectors = [data[at : at + 2048] for at in range(16 * 2048, 19 * 2048, 2048)]
    assert [(s[0], s[1:6]) for s in sectors] == [(1, b"CD001"), (0, b"CD001"), (255, b"CD001")]
    assert int.from_bytes(sectors[0][80:84], "little") * 2048 == len(data)
    catalog = data[int.from_bytes(sectors[1][71:75], "little") * 2048 :][:128]
    assert (
        sum(int.from_bytes(catalog[at : at + 2], "little") for at in range(0, 32, 2)) % 0x10000 == 0
    )
    bios, section, uefi = catalog[32:64], catalog[64:96], catalog[96:128]
    assert (bios[0], bios[1], int.from_bytes(bios[8:12], "little")) == (0x88, 4, 0)
    assert (section[0], section[1], section[2]) == (0x91, 0xEF, 1)
    partition = data[int.from_bytes(uefi[8:12], "little") * 2048 :]
    assert (
        (uefi[0], uefi[1]) == (0x88, 0)
        and partition[54:59] == b"FAT16"
        and partition[510:512] == b"\x55\xaa"
    )


def test_mistakes_are_named_and_lose_nothing(tmp_path: Path) -> None:
    image = tmp_path / "boot.img"
    image.write_bytes(b"before")
    with pytest.raises(InputError, match="some programs are not there") as caught:
        media.write(image, tmp_path)
    assert caught.value.hint == "apt-get install ipxe" and image.read_bytes() == b"before"
    with pytest.raises(InputError, match="No such file or directory"):
        media.write(tmp_path / "no" / "boot.img", IPXE)
    with pytest.raises(InputError, match="it is not a file"):
        media.write(tmp_path, IPXE)
