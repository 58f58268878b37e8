"""How long a scratch over two disks takes, against the bare tools: a RAID 0 with XFS, on a virtual
machine.

`ratio` is what the node took to look at its disks, make and mount the scratch, over what a script
took that runs the same programs one after the other on two more disks of the same machine;
`loading_s`, in which modules came from the head, is left out of it: the script finds them loaded.
What was read of the programs is forgotten before the script, but for what a look at a disk reads:
the node has looked at its disks, too, before its time begins, and has run nothing else. Prints one
JSON object last.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from sampleimages import plain_image
from vrack.rack import Rack
from vrack.spec import VmSpec

SIZE = 4 << 30
BARE = """#!/bin/sh
set -e
tools() { program=$1; shift; chroot /run/layercake/disktools/layers/* /usr/sbin/$program "$@"; }
for disk in vdc vdd; do
    echo type=raid | tools sfdisk -q --wipe always --wipe-partitions always --label gpt /dev/$disk
done
export MDADM_NO_UDEV=1
tools mdadm --create /dev/md9 --run --quiet --metadata=1.2 --level=0 --raid-devices=2 /dev/vdc1 /dev/vdd1
tools mkfs.xfs -q -f /dev/md9
mkdir -p /bare
mount -t xfs /dev/md9 /bare
"""
FORGET = """#!/bin/sh
sync
echo 3 >/proc/sys/vm/drop_caches
chroot /run/layercake/disktools/layers/* /usr/sbin/blkid -p /dev/vdc
true
"""
_TOOK = re.compile(r"task bare is done, in ([0-9.]+) s")


def _disks(directory: Path) -> tuple[str, ...]:
    more: tuple[str, ...] = ()
    for name in ("S1", "S2", "B1", "B2"):
        with (directory / name).open("wb") as file:
            file.truncate(SIZE)
        more += (
            "-drive",
            f"if=none,id={name},format=raw,file={directory / name}",
            "-device",
            f"virtio-blk-pci,drive={name},serial={name}",
        )
    return more


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory(prefix="layercake-bench-") as scratch:
        directory = Path(scratch)
        rack = Rack(directory / "rack", [VmSpec(more=_disks(directory))])
        head = HeadRun(rack, directory / "head")
        try:
            rack.up()
            (directory / "files").mkdir()
            (directory / "files/bare").write_text(BARE)
            (directory / "files/forget").write_text(FORGET)
            head.init({"files": {"directory": str(directory / "files")}})
            head.start()
            head.api(
                "POST",
                "/v1/images",
                {
                    "path": str(plain_image("plain-1")),
                    "name": "plain-1",
                    "systemd": False,
                    "command": ["/init"],
                },
            )
            data = yaml.safe_load(rack.inventory(images=["plain-1"]))
            data["nodes"]["n0"] |= {
                "disks": {
                    "scratch": {
                        "match": {"serial": ["S1", "S2"]},
                        "count": 2,
                        "raid": 0,
                        "volumes": {"scratch": {"type": "xfs", "mount": "/scratch"}},
                    }
                },
                "files": {
                    f"minos:/usr/local/sbin/{name}": {"source": name, "mode": "0755"}
                    for name in ("forget", "bare")
                },
                "uinit": {
                    "forget": {"order": 10, "run": ["/usr/local/sbin/forget"], "timeout_s": 300},
                    "bare": {"order": 20, "run": ["/usr/local/sbin/bare"], "timeout_s": 300},
                },
            }
            head.apply(yaml.safe_dump(data))
            head.wait_converged(600)
            events = head.history("n0")
        finally:
            head.close()
            rack.down()
    ready = next(e["data"] for e in events if e["kind"] == "node.disks-ready")
    bare = next(float(found[1]) for e in events if (found := _TOOK.search(e["text"])))
    ours = ready["seconds"] - ready["loading_s"]
    print(
        f"scratch ready in {ready['seconds']:.2f} s, {ready['loading_s']:.2f} s of them for "
        f"modules; bare tools {bare:.1f} s"
    )
    print(
        json.dumps(
            {
                "ratio": round(ours / bare, 2),
                "ready_s": ready["seconds"],
                "loading_s": ready["loading_s"],
                "bare_s": bare,
            }
        )
    )


if __name__ == "__main__":
    main()
