"""A machine's own disks, by the distribution's tools and a real kernel: made, brought up again, and
what is not ours left alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from headclient import HeadRunError
from smallimages import PLAIN_INIT, build_plain_image

from tests.vm import disks
from tests.vm.conftest import BOOT_S, Site

pytestmark = pytest.mark.vm
KEEPER = """\
echo x >> /var/lib/boots/list
echo "kept=$(cat /var/lib/boots/list | busybox wc -l) scratch=$(ls /scratch | busybox wc -l)"
echo x > /scratch/mine
"""


def logged(site: Site) -> str:
    """What the image has said of its disks, "" if it has not yet. A node that is asked while it
    is started anew has no image: what it was then is printed, for it was called converged."""
    try:
        text = site.head.api("GET", "/v1/nodes/n0/logs?lines=50")["text"]
    except HeadRunError as error:
        print(error, site.head.describe(), sep="\n")
        if "no such image here" in str(error):
            return ""
        raise
    return next((line for line in reversed(text.splitlines()) if "kept=" in line), "")


def inventory(site: Site, image: str, **layouts: object) -> str:
    data = yaml.safe_load(site.inventory())
    data["nodes"]["n0"] |= {"images": [image], "disks": {**site.disks, **layouts}}
    return str(yaml.safe_dump(data))


def released(site: Site) -> None:
    """Nodes are released: nothing of what was written is on any disk, seen from outside of the
    machine, and a TPM is cleared."""
    head, files = site.head, sorted(site.directory.glob("*.raw"))
    assert [file.stem for file in files if holds(file)] == ["nv", "sa", "va", "vb"]
    head.cli("node", "release", "n[0-1]", "--yes")
    assert "released" in head.cli("power", "off", "n0", "--yes", check=False).stderr
    for name in ("n0", "n1"):
        head.wait(f"the release of {name} is over", partial(is_over, site, name), BOOT_S)
    shown, other = release_of(site, "n0"), release_of(site, "n1")
    assert shown["state"] == other["state"] == "done", (shown, other)
    assert {step["name"]: step["result"] for step in other["steps"]}["tpm"] == "done"
    zeros = "overwritten with zeros"
    assert {disk["serial"]: disk["way"] for disk in shown["disks"]} == {
        "VD-va": zeros,
        "VD-vb": zeros,
        "SA-1": zeros,
        "NV-1": "NVMe Format",
    }
    assert [file.stem for file in files if holds(file)] == []


def release_of(site: Site, name: str) -> dict[str, Any]:
    found: dict[str, Any] = site.head.api("GET", f"/v1/nodes/{name}/releases")["releases"][0]
    return found


def disks_of(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.head.api("GET", "/v1/nodes/n0/disks")
    return found


def is_over(site: Site, name: str) -> bool:
    return bool(release_of(site, name)["state"] != "running")


def holds(file: Path) -> bool:
    """Whether there is anything but zeros in a file."""
    with file.open("rb") as disk:
        return any(data.strip(b"\0") for data in iter(partial(disk.read, 1 << 20), b""))


def test_a_scratch_what_is_kept_and_a_disk_that_is_somebody_elses(
    site: Site, tmp_path: Path
) -> None:
    head = site.head
    site.disks = disks.LAYOUTS
    head.apply(site.inventory())
    head.cli("power", "cycle", "n0", "--yes")  # a layout counts in the next boot
    head.wait("they are made", lambda: disks_of(site)["state"] == "READY", BOOT_S)
    head.wait_converged(BOOT_S, {"n0"})
    shown = disks_of(site)
    assert {one["name"]: one["state"] for one in shown["layouts"]} == {
        "data": "READY",
        "scratch": "READY",
    }
    assert {d["name"][:3]: d["layout"] for d in shown["disks"]} == {
        "vda": "scratch",
        "vdb": "scratch",
        "nvm": "data",
        "sda": "",
    }
    image = tmp_path / "keeper.squashfs"
    build_plain_image(
        image, "keeper", script=PLAIN_INIT.replace("#!/bin/sh\n", f"#!/bin/sh\n{KEEPER}", 1)
    )
    head.api(
        "POST",
        "/v1/images",
        {
            "path": str(image),
            "name": "keeper",
            "systemd": False,
            "command": ["/init"],
            "keep": ["/var/lib/boots"],
            "mounts": [{"kind": "bind", "source": "/scratch", "target": "/scratch"}],
        },
    )
    head.apply(inventory(site, "keeper"))
    head.wait_converged(BOOT_S, {"n0"})
    head.wait("it says what it has", lambda: logged(site), 60)
    assert logged(site) == "kept=1 scratch=0"
    head.apply(inventory(site, "keeper", other=disks.FOREIGN))
    before = head.nodes()["n0"]["boot_id"]
    head.cli("power", "cycle", "n0", "--yes")
    head.wait("it boots anew", lambda: head.nodes()["n0"]["boot_id"] not in (before, None), BOOT_S)
    head.wait("the payroll is found", lambda: disks_of(site)["state"] == "FOREIGN", BOOT_S)
    head.wait(
        "it is explained",
        lambda: "holds ext4 'payroll'" in head.cli("node", "explain", "n0").stdout,
        60,
    )
    assert head.nodes()["n0"]["boot_id"] not in (before, None), "it is the new boot that found it"
    assert (
        "the inventory does not name it"
        in head.cli("machine", "wipe", "n0", "SA-1", "--yes", check=False).stderr
    )
    free = inventory(site, "keeper", other={**disks.FOREIGN, "wipe": ["SA-1"]})
    plan = head.api("POST", "/v1/inventory/plan", {"yaml": free, "file": "rack.yaml"})
    assert "disk SA-1 of layout other may be made anew" in str(plan)
    head.apply(free)
    head.cli("machine", "wipe", "n0", "SA-1", "--yes")
    head.wait_converged(BOOT_S, {"n0"})
    head.wait("it says what it has", lambda: logged(site), 60)
    assert logged(site) == "kept=2 scratch=0", "what was kept is there, and the scratch is empty"
    assert "made anew for layout other; it held ext4 'payroll'" in " ".join(
        e["text"] for e in head.history("n0")
    )
    site.disks = {}
    head.apply(site.inventory())  # without: else they are made anew as soon as the node is free
    head.wait_converged(BOOT_S, {"n0"})
    released(site)
    head.wait_converged(BOOT_S)
