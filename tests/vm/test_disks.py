"""A machine's own disks, by the distribution's tools and a real kernel: made, brought up again, and what is not ours left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
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
    lines: list[str] = site.head.api("GET", "/v1/nodes/n0/logs?lines=50")["text"].splitlines()
    return next((line for line in reversed(lines) if "kept=" in line), "")


def inventory(site: Site, image: str, **layouts: object) -> str:
    data = yaml.safe_load(site.inventory())
    data["nodes"]["n0"] |= {"images": [image], "disks": {**disks.LAYOUTS, **layouts}}
    return str(yaml.safe_dump(data))


def test_a_scratch_what_is_kept_and_a_disk_that_is_somebody_elses(site: Site, tmp_path: Path) -> None:
    head = site.head
    shown = head.api("GET", "/v1/nodes/n0/disks")
    assert shown["state"] == "READY"
    assert {one["name"]: one["state"] for one in shown["layouts"]} == {"data": "READY", "scratch": "READY"}
    assert {d["name"][:3]: d["layout"] for d in shown["disks"]} == {"vda": "scratch", "vdb": "scratch", "nvm": "data", "sda": ""}
    image = tmp_path / "keeper.squashfs"
    build_plain_image(image, "keeper", script=PLAIN_INIT.replace("#!/bin/sh\n", f"#!/bin/sh\n{KEEPER}", 1))
    head.api("POST", "/v1/images", {
        "path": str(image), "name": "keeper", "systemd": False, "command": ["/init"], "keep": ["/var/lib/boots"],
        "mounts": [{"kind": "bind", "source": "/scratch", "target": "/scratch"}]})
    head.apply(inventory(site, "keeper"))
    head.wait_converged(BOOT_S, {"n0"})
    head.wait("it says what it has", lambda: logged(site), 60)
    assert logged(site) == "kept=1 scratch=0"
    head.apply(inventory(site, "keeper", other=disks.FOREIGN))
    before = head.nodes()["n0"]["boot_id"]
    head.cli("power", "cycle", "n0", "--yes")
    head.wait("the payroll is found", lambda: "holds ext4 'payroll'" in head.cli("node", "explain", "n0").stdout, BOOT_S)
    assert head.api("GET", "/v1/nodes/n0/disks")["state"] == "FOREIGN"
    assert head.nodes()["n0"]["boot_id"] != before
    assert "the inventory does not name it" in head.cli("machine", "wipe", "n0", "SA-1", "--yes", check=False).stderr
    free = inventory(site, "keeper", other={**disks.FOREIGN, "wipe": ["SA-1"]})
    plan = head.api("POST", "/v1/inventory/plan", {"yaml": free, "file": "rack.yaml"})
    assert "disk SA-1 of layout other may be made anew" in str(plan)
    head.apply(free)
    head.cli("machine", "wipe", "n0", "SA-1", "--yes")
    head.wait_converged(BOOT_S, {"n0"})
    head.wait("it says what it has", lambda: logged(site), 60)
    assert logged(site) == "kept=2 scratch=0", "what was kept is there, and the scratch is empty"
    assert "made anew for layout other; it held ext4 'payroll'" in " ".join(e["text"] for e in head.history("n0"))
    site.disks = {}
    head.apply(site.inventory())
    head.wait_converged(BOOT_S, {"n0"})
