"""The whole way of a driver that the boot profile does not have: a boot set of a real head, and a
real agent that has booted it.

What is pretended is the node's kernel: its devices, and what it does with a module.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import ROOT, HostSite
from smallimages import build_plain_image, write

from imageapi.settings import ImageSettings
from imageapi.store.manifest import Signer
from minos.build import sets
from tests.build.test_single_modules import BOCHS, RELEASE, TG3, WATCHDOG, made_up, original

SET = "0.2.0-made-up"
DEVICE = f"/dev/layercake-{secrets.token_hex(4)}"
PRETENDED = '''

def load_module(path: str) -> None:
    """A kernel that keeps what it is given, and has the watchdog's driver make a device file."""
    import os
    import stat
    from pathlib import Path

    data, root = Path(path).read_bytes(), Path({root!r})
    (root / f"loaded-{{len(list(root.glob('loaded-*')))}}").write_bytes(data)
    if b"\\0name=i6300esb\\0" in data:
        (root / "sys/bus/pci/devices/0000:00:04.0/driver").symlink_to("../../drivers/i6300esb")
        os.mknod({device!r}, stat.S_IFCHR | 0o600, os.makedev(1, 3))
'''

pytestmark = pytest.mark.root


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HostSite]:
    found = HostSite(tmp_path / "site", 1, {}, store=ImageSettings(privileges={"app": ["devices"]}))
    found.nodes[0].boot, found.nodes[0].code = SET, pretended(tmp_path)
    try:
        yield found
    finally:
        found.down()
        Path(DEVICE).unlink(missing_ok=True)


def pretended(directory: Path) -> Path:
    """This checkout, for a node whose kernel and devices are pretended."""
    code = directory / "code"
    shutil.copytree(ROOT / "minos", code / "minos", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("layercake", "imageapi"):
        (code / name).symlink_to(ROOT / name)
    with (code / "minos/syscalls.py").open("a") as file:
        file.write(PRETENDED.format(root=str(directory), device=DEVICE))
    places = code / "minos/hardware.py"
    text = places.read_text()
    for name, place in (("MODULES", "modules"), ("FIRMWARE", "firmware"), ("SYS", "sys")):
        line = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
        text = text.replace(line, f'{name} = "{directory / place}"')
    places.write_text(text)
    for slot, alias in (("0000:00:04.0", WATCHDOG), ("0000:00:05.0", BOCHS)):
        write(directory / "sys/bus/pci/devices" / slot / "modalias", alias)
    return code


def boot_set(site: HostSite, modules: Path) -> None:
    """What `layercake boot build` makes, with a few modules."""
    new = site.data / "boot/.new"
    for name in sets.FILES:
        write(new / name, name)
    write(new / "minos.json", json.dumps({"kernel_release": RELEASE, "modules": ["nvme"]}))
    shutil.copyfile(modules, new / sets.MODULES)
    sets.sign(new, SET, Signer(site.data / "images/signing.key").sign)
    new.rename(site.data / "boot" / SET)


def found(site: HostSite, undriven: dict[str, list[str]]) -> None:
    """What process 1 writes down of the node's devices."""
    place = site.nodes[0].inside(site.nodes[0].directory / "run/hardware.new")
    place.write_text(
        json.dumps({"cards": [], "modules": {}, "cold_plug_s": 1.0, "undriven": undriven})
    )
    place.replace(place.with_name("hardware.json"))


def test_a_node_gets_a_driver_that_its_boot_profile_does_not_have(
    site: HostSite, tmp_path: Path
) -> None:
    """And an image that was given up, for want of the driver's device file, is tried again."""
    site.begin()
    boot_set(site, made_up(tmp_path / "kernel"))
    app = build_plain_image(tmp_path / "app.squashfs", "app")
    site.api(
        "POST",
        "/v1/images",
        {
            "path": str(app),
            "name": "app",
            "systemd": False,
            "command": ["/init"],
            "stop_timeout_s": 2.0,
            "devices": [DEVICE],
        },
    )
    site.api("POST", "/v1/images/roll", {"range": "h0", "image": "app"})
    site.wait("the image is given up", lambda: site.history("h0", "image.fatal"), 120)
    found(site, {WATCHDOG: ["pci/0000:00:04.0"], BOCHS: ["pci/0000:00:05.0"]})
    site.wait("it is told", lambda: site.history("h0", "node.drivers-fetched"), 120)
    (told,) = site.history("h0", "node.drivers-fetched")
    assert told["text"] == "drivers were fetched from the head: i6300esb for pci/0000:00:04.0"
    assert [(tmp_path / f"loaded-{n}").read_bytes() for n in (0, 1)] == [
        original("watchdog"),
        original("i6300esb"),
    ]
    (left,) = site.history("h0", "node.drivers-left")
    assert left["text"].startswith(
        "bochs for pci/0000:00:05.0: drivers of its kind are loaded by a boot profile or an image"
    )
    site.wait("the image runs", lambda: site.nodes[0].containers().get("app"), 120)

    with (site.data / "boot" / SET / sets.MODULES).open("ab") as file:
        file.write(b"more")
    found(site, {TG3: ["pci/0000:00:06.0"]})
    site.wait("it is told", lambda: site.history("h0", "node.driver-failed"), 120)
    (told,) = site.history("h0", "node.driver-failed")
    assert (
        "modules.squashfs was changed since it was signed" in told["text"]
        and not (tmp_path / "loaded-2").exists()
    )
