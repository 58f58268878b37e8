"""Debian's own cloud-init asks the metadata service of a node, in a root and a network of its
own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrun import CACHE
from serviceimages import CLOUD_PACKAGES
from smallimages import debian_base, unpacked, write

from layercake.features.files.given import facts
from tests.minos.test_metadata import KEYS, NODE

pytestmark = pytest.mark.root

SERVE = """
import json, sys, time
from minos.agent.metadata.service import Metadata, add_address, listen
from minos.netlink import Netlink, link_up
link = Netlink()
link.request(link_up(1, link.next()), "loopback")
link.close()
add_address()
service = Metadata(listen)
service.update({path: data.encode() for path, data in json.loads(sys.stdin.read()).items()})
print("ready", flush=True)
time.sleep(1000)
"""
USER_DATA = """#cloud-config
write_files:
  - {path: /etc/from-user-data, content: "it was read", owner: "root:root"}
"""
NOCLOUD = (
    "datasource_list: [NoCloud]\ndatasource: {NoCloud: {seedfrom: "
    '"http://169.254.169.254/nocloud/"}}\n'
)
PAGE = (Path(__file__).parents[2] / "docs/howto/cloud-init.md").read_text()


def written(first: str) -> str:
    """The block of the page that begins so."""
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    return next(block for block in blocks if first in block)


EC2 = "datasource_list: [Ec2]\ndatasource: {Ec2: {strict_id: false, timeout: 5, max_wait: 20}}\n"
AWS = """
mount -t tmpfs tmpfs $tree/sys/class && mkdir -p $tree/sys/class/net $tree/sys/class/dmi/id
ln -s ../../devices/virtual/net/lo $tree/sys/class/net/lo
echo ec2abcde-0000-4000-8000-000000000001 | tee $tree/sys/class/dmi/id/product_uuid > $tree/sys/class/dmi/id/product_serial
"""
"""Only where the firmware says that it is AWS's does cloud-init's source for EC2 ask for tokens."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with unpacked(debian_base(CACHE / "images", "cloud", CLOUD_PACKAGES, "bookworm")) as found:
        for key in (found / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        yield found


STAGES = """
mount -t proc proc TREE/proc && mount -t sysfs sysfs TREE/sys && mount -t tmpfs tmpfs TREE/run
mount --bind /dev TREE/dev
rm -rf TREE/var/lib/cloud/* PLACE/log
tree=TREE
MACHINE
$PYTHON -c "$SERVE" < PLACE/said > PLACE/ready & server=$!
until [ -s PLACE/ready ] || ! kill -0 $server; do sleep 0.1; done
chroot TREE /usr/bin/cloud-init --debug init >> PLACE/log 2>&1
for mode in config final; do
  chroot TREE /usr/bin/cloud-init --debug modules --mode=$mode >> PLACE/log 2>&1
done
chroot TREE /usr/bin/cloud-init status --long > PLACE/status 2>&1
cp TREE/run/cloud-init/instance-data.json PLACE/
kill $server
"""


def _carry_out(place: Path, script: str, user_data: str) -> str:
    """Runs a script beside a metadata service that has this user-data; what cloud-init logged."""
    said = {
        "/facts.json": facts(NODE, {"name": "rack7", "domain": "lab.test"}, KEYS).data.decode(),
        "/user-data": user_data,
    }
    (place / "said").write_text(json.dumps(said))
    done = subprocess.run(
        [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
        ],
        env={
            "SERVE": SERVE,
            "PYTHON": sys.executable,
            "PYTHONPATH": str(Path.cwd()),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    log = (place / "log").read_text() if (place / "log").exists() else ""
    return f"{done.stdout}{done.stderr}{log}"


def test_cloud_init_as_the_page_has_it_ends_well(tree: Path, tmp_path: Path) -> None:
    """All of its stages, and no error in any."""
    (tree / "etc/motd").unlink(missing_ok=True)
    write(tree / "etc/cloud/cloud.cfg.d/90_layercake.cfg", written("datasource_list"))
    user_data = written("write_files").replace("{{ node.name }}", "n1")
    script = STAGES.replace("TREE", str(tree)).replace("PLACE", str(tmp_path))
    log = _carry_out(tmp_path, script.replace("MACHINE", ""), user_data)
    status = (tmp_path / "status").read_text()
    assert "status: done" in status and "DataSourceNoCloud" in status, f"{status}{log[-3000:]}"
    assert (tree / "etc/motd").read_text() == "this is n1\n"


@pytest.mark.parametrize(("config", "machine"), [(NOCLOUD, ""), (EC2, AWS)], ids=["nocloud", "ec2"])
def test_cloud_init_finds_its_node(tree: Path, config: str, machine: str, tmp_path: Path) -> None:
    for place in ("root/.ssh/authorized_keys", "etc/from-user-data"):
        (tree / place).unlink(missing_ok=True)
    write(
        tree / "etc/cloud/cloud.cfg.d/90_layercake.cfg",
        f"{config}network: {{config: disabled}}\n"
        "disable_root: false\nssh_genkeytypes: []\npreserve_hostname: true\n",
    )
    script = STAGES.replace("TREE", str(tree)).replace("PLACE", str(tmp_path))
    log = _carry_out(tmp_path, script.replace("MACHINE", machine), USER_DATA)
    assert (tmp_path / "instance-data.json").exists(), log[-3000:]
    found = json.loads((tmp_path / "instance-data.json").read_text())["v1"]
    assert found["instance_id"] == NODE.id and found["cloud_name"].lower() in (
        "nocloud",
        "unknown",
        "aws",
        "ec2",
    ), found
    assert found["local_hostname"] == "n1"
    keys = (tree / "root/.ssh/authorized_keys").read_text()
    assert "AAAA me@here" in keys and "BBBB you" in keys
    assert (tree / "etc/from-user-data").read_text() == "it was read", log[-3000:]
