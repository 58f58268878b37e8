"""The image of a USB stick: what is on it, read by other programs, and what is said when it cannot be made."""

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
    assert media.write(image, IPXE) == image.stat().st_size == (media.START + media.SECTORS) * media.SECTOR
    done = subprocess.run(["sfdisk", "--json", str(image)], capture_output=True, text=True, check=True)
    (partition,) = json.loads(done.stdout)["partitiontable"]["partitions"]
    assert (partition["start"], partition["size"], partition["bootable"]) == (media.START, media.SECTORS, True)
    for name, file in (("EFI/BOOT/BOOTX64.EFI", "ipxe.efi"), ("ipxe.lkrn", "ipxe.lkrn")):
        found = subprocess.run(["mcopy", "-i", f"{image}@@1M", f"::/{name}", "-"], capture_output=True, check=True).stdout
        assert found == (IPXE / file).read_bytes()
    assert image.read_bytes()[:440].rstrip(b"\0") and image.read_bytes()[510:512] == b"\x55\xaa"
    assert [p.name for p in tmp_path.iterdir()] == ["boot.img"]


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
