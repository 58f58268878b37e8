"""Four VMs from power-off to a running systemd image, against dnsmasq and a static HTTP server
bringing them to /init.

Both turns use the same rack: VMs, firmware, kernel, initramfs, all on this machine's cores, one
after the other. The ratio is power-off to all joined, over power-off to all at /init.
`cold_plug_s`: how long the slowest node took to find its hardware and load the drivers. `--profile
server`: the general kernel, with drivers in hardware.img. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from sampleimages import systemd_image
from vrack.rack import Rack

from minos.build import sets
from minos.hardware import FOUND
from pxe.paths.boot_spec import KERNEL, initrds
from tests.bench._history import boot_steps, median

LIMIT_S = 400.0
AT_INIT = "init: Python"
SCRIPT = """#!ipxe
kernel http://10.99.0.1:8088/vmlinuz {names} console=ttyS0 quiet mitigations=off no_timer_check edd=off panic=10
{fetches}
boot
"""
DNSMASQ = """port=0
interface=br0
bind-interfaces
dhcp-range=10.99.0.50,static
dhcp-authoritative
no-ping
leasefile-ro
enable-tftp
tftp-root={tftp}
dhcp-range=fd99::,ra-only,64
enable-ra
ra-param=br0,mtu:1500,high,10,1800
dhcp-match=set:ipxe,175
dhcp-match=set:bios,option:client-arch,0
dhcp-match=set:efi64,option:client-arch,7
dhcp-boot=tag:ipxe,http://10.99.0.1:8088/boot.ipxe
dhcp-boot=tag:!ipxe,tag:bios,undionly.kpxe
dhcp-boot=tag:!ipxe,tag:efi64,snponly.efi
"""


def ours(rack: Rack, head: HeadRun) -> tuple[float, float, dict[str, dict[str, float]], float]:
    """Seconds to all joined and to all running their image, each node's steps, and the longest cold
    plug."""
    names = ",".join(n.name for n in rack.nodes)
    start = time.time()
    head.api("POST", "/v1/nodes/state", {"range": names, "state": "up"})
    head.wait_converged(LIMIT_S)
    done = time.time() - start
    steps = {n.name: boot_steps(head.history(n.name), start) for n in rack.nodes}
    joined = max(s["joined"] for s in steps.values())
    plugged: dict[str, float] = {}
    while (sets.all_of(head.data / "boot")[0].directory / sets.HARDWARE).exists() and len(
        plugged
    ) < len(rack.nodes):
        told = {
            n.name: head.cli(
                "node", "exec", n.name, "--", "cat", f"/run/layercake/{FOUND}", check=False
            )
            for n in rack.nodes
        }
        plugged = {
            name: json.loads(done.stdout)["cold_plug_s"]
            for name, done in told.items()
            if done.returncode == 0
        }
        if time.time() - start > LIMIT_S:
            raise SystemExit("nodes do not tell of their hardware: " + head.describe())
    head.api("POST", "/v1/nodes/state", {"range": names, "state": "off"})
    head.wait_converged(120)
    return joined, done, steps, max(plugged.values(), default=0.0)


def theirs(rack: Rack, boot: Path, scratch: Path) -> float:
    """Seconds until all are at /init, booted by dnsmasq and a static HTTP server, powered on by
    ipmitool and curl."""
    web, tftp = scratch / "web", scratch / "tftp"
    for directory in (web, tftp):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    directory = sets.all_of(boot)[0].directory
    archives = initrds(directory)
    for name in (KERNEL, *archives):
        shutil.copy(directory / name, web / name)
    (web / "boot.ipxe").write_text(
        SCRIPT.format(
            names=" ".join(f"initrd={name}" for name in archives),
            fetches="\n".join(
                f"initrd --name {name} http://10.99.0.1:8088/{name}" for name in archives
            ),
        )
    )
    for name in ("undionly.kpxe", "snponly.efi"):
        shutil.copy(f"/usr/lib/ipxe/{name}", tftp / name)
    hosts = "".join(f"dhcp-host={n.mac},{n.ip}\n" for n in rack.nodes)
    (scratch / "dnsmasq.conf").write_text(DNSMASQ.format(tftp=tftp) + hosts)
    log = (scratch / "peer.log").open("ab")
    servers = [
        rack.exec(
            ["dnsmasq", "-C", str(scratch / "dnsmasq.conf"), "--no-daemon", "--user=root"],
            stdout=log,
            stderr=log,
        ),
        rack.exec(
            [
                sys.executable,
                "-m",
                "http.server",
                "8088",
                "--bind",
                "10.99.0.1",
                "--directory",
                str(web),
            ],
            stdout=log,
            stderr=log,
        ),
    ]
    try:
        time.sleep(1.0)
        before = [rack.console(i).count(AT_INIT) for i in range(len(rack.nodes))]
        start = time.monotonic()
        with ThreadPoolExecutor(len(rack.nodes)) as pool:
            list(pool.map(lambda i: bmc_power(rack, i, on=True), range(len(rack.nodes))))
        while any(rack.console(i).count(AT_INIT) <= n for i, n in enumerate(before)):
            if time.monotonic() - start > LIMIT_S:
                raise SystemExit("the peer's nodes did not come up:\n" + rack.console(0)[-2000:])
            time.sleep(0.1)
        return time.monotonic() - start
    finally:
        for index in range(len(rack.nodes)):
            bmc_power(rack, index, on=False)
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
        log.close()


def bmc_power(rack: Rack, index: int, *, on: bool) -> None:
    """Switches a machine by its BMC with the tools of the trade."""
    node = rack.nodes[index]
    assert rack.secrets is not None
    if node.bmc.value == "ipmi":
        password_file = str(rack.secrets.password_file)
        tool = [
            "ipmitool",
            "-I",
            "lanplus",
            "-C",
            "3",
            "-H",
            node.bmc_address,
            "-U",
            "admin",
            "-f",
            password_file,
        ]
        done = rack.run([*tool, "chassis", "power", "on" if on else "off"])
    else:
        password = rack.secrets.password_file.read_text().strip()
        url = f"https://{node.bmc_address}:8000/redfish/v1/Systems/{node.uuid}/Actions/ComputerSystem.Reset"
        kind = "On" if on else "ForceOff"
        config = f'user = "admin:{password}"\n'
        done = subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                rack.namespace,
                "curl",
                "-ksf",
                "-K",
                "-",
                "-H",
                "Content-Type: application/json",
                "-d",
                json.dumps({"ResetType": kind}),
                url,
            ],
            input=config,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    if done.returncode != 0:
        raise SystemExit(f"cannot switch {node.name}: {done.stdout}{done.stderr}")


def main() -> None:
    """Runs the turns and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--profile", default="virtual")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="layercake-bench-"))
    rack = Rack(scratch / "rack", options.nodes)
    head = HeadRun(rack, scratch / "head", options.profile)
    joined, done, peer = [], [], []
    steps, plugged = dict[str, dict[str, float]](), list[float]()
    try:
        image = systemd_image("debian-1")
        rack.up()
        head.init()
        for turn in range(options.turns):
            head.start()
            if turn == 0:
                head.api(
                    "POST", "/v1/images", {"path": str(image), "name": "debian-1", "systemd": True}
                )
                head.apply(rack.inventory(images=["debian-1"]).replace("state: up", "state: 'off'"))
                head.wait_converged(60)
            a, b, steps, plug = ours(rack, head)
            plugged.append(plug)
            head.stop()
            joined.append(a)
            done.append(b)
            peer.append(theirs(rack, head.data / "boot", scratch))
            print(
                f"turn {turn + 1}: all joined {a:.1f} s, all running {b:.1f} s; the peer at /init "
                f"{peer[-1]:.1f} s",
                flush=True,
            )
    finally:
        head.close()
        rack.down()
        shutil.rmtree(scratch, ignore_errors=True)
    print(
        json.dumps(
            {
                "nodes": options.nodes,
                "rack_s": round(median(done), 1),
                "joined_s": round(median(joined), 1),
                "peer_init_s": round(median(peer), 1),
                "ratio": round(median([a / b for a, b in zip(joined, peer, strict=True)]), 3),
                "profile": options.profile,
                "cold_plug_s": max(plugged),
                "steps": steps,
            }
        )
    )


if __name__ == "__main__":
    main()
