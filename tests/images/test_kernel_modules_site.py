"""The whole way: a boot set of a real head, its image server, and a real agent that has booted that
set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostsite import HostSite
from smallimages import build_plain_image, write

from imageapi.build.squash import squash
from imageapi.store.manifest import Signer
from minos.build import sets

RELEASE, SET = os.uname().release, "0.2.0-made-up"

pytestmark = pytest.mark.root


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HostSite]:
    found = HostSite(tmp_path / "site", 1, {})
    found.nodes[0].boot = SET
    try:
        found.begin()
        app = build_plain_image(tmp_path / "app.squashfs", "app")
        for name, wants in (("plain", False), ("app", True)):
            found.api(
                "POST",
                "/v1/images",
                {
                    "path": str(app),
                    "name": name,
                    "systemd": False,
                    "command": ["/init"],
                    "stop_timeout_s": 2.0,
                    "kernel_modules": wants,
                },
            )
        yield found
    finally:
        found.down()


def boot_set(site: HostSite, modules: Path | None) -> None:
    """What `layercake boot build` makes, with made-up modules."""
    new = site.data / "boot/.new"
    for name in sets.FILES:
        write(new / name, name)
    if modules is not None:
        modules.rename(new / sets.MODULES)
    sets.sign(new, SET, Signer(site.data / "images/signing.key").sign)
    new.rename(site.data / "boot" / SET)


def roll(site: HostSite, image: str) -> None:
    site.api("POST", "/v1/images/roll", {"range": "h0", "image": image})


def test_a_node_gets_the_modules_of_the_set_that_it_has_booted(
    site: HostSite, tmp_path: Path
) -> None:
    write(tmp_path / "tree/modules" / RELEASE / "modules.dep", "kernel/made_up.ko:\n")
    boot_set(site, squash(tmp_path / "tree", tmp_path / "modules.squashfs"))
    roll(site, "app")
    (node,) = site.nodes
    site.wait("the image runs", lambda: node.containers().get("app"), 120)
    inside = Path(f"/proc/{node.containers()['app']}/root/lib/modules")
    assert (inside / RELEASE / "modules.dep").read_text() == "kernel/made_up.ko:\n"
    layers = node.inside(node.directory / "run/layers")
    assert len(list(layers.iterdir())) == 2
    roll(site, "plain")
    site.wait("the other image runs", lambda: node.containers().keys() == {"plain"}, 120)
    site.wait("the modules are let go", lambda: len(list(layers.iterdir())) == 1, 120)


def test_a_set_of_an_older_layercake_has_none(site: HostSite) -> None:
    boot_set(site, None)
    roll(site, "app")
    site.wait("it is told", lambda: site.history("h0", "image.error"), 120)
    told = site.history("h0", "image.error")[0]["text"]
    assert told.startswith(
        "cannot give image app the kernel's modules: the head gives none for the boot set"
    ), told
