"""`make demo`: a virtual rack from power-off to running images, a roll to a second image, and away again.

Everything is real but the metal: firmware, BMC protocols, kernel, minOS, containers. `--keep` leaves it up to play with.
With `--store rbd` (`make demo STORE=rbd`) the images are in a real Ceph, which the machines read them from as they need them. With
`--rack libvirt` (`make demo RACK=libvirt`) the machines are libvirt's, and their BMCs virtualbmc and sushy-emulator.
With `--discovery` (`make demo DISCOVERY=1`) there are two machines more, which no inventory knows (discoverydemo.py).
With `--pcap DIR` (`make demo PCAP=DIR`) what each machine says and hears on its network is recorded.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cephrun import POOL, CephError, CephRun
from discoverydemo import Discovery, machines
from headclient import HeadRunError
from headrun import HeadRun
from sampleimages import crashing_image, systemd_image
from vrack.rack import Rack, RackError
from vrack.recording import Recording
from vrack.spec import standard_nodes

NODES = 4
NAMES = f"n[0-{NODES - 1}]"
LIMIT_S = 600.0


class Demo:
    """One run of the demo; `say` prints what happens and when."""

    def __init__(self, directory: Path, store: str = "file", rack: str = "qemu", pcap: Path | None = None,
                 *, discovery: bool = False) -> None:
        self.directory = directory
        self.store = store
        self.ceph: CephRun | None = None
        self.started = time.monotonic()
        nodes = [*standard_nodes(NODES), *machines(directory)] if discovery else NODES
        self.rack = Rack(directory / "rack", nodes, libvirt=rack == "libvirt")
        self.head = HeadRun(self.rack, directory / "head")
        self.discovery = Discovery(self.rack, self.head, directory, self.layercake, self.say) if discovery else None
        self.pcap = pcap
        self.recording = Recording(self.rack, pcap) if pcap is not None else None

    def say(self, text: str) -> None:
        print(f"\n=== {time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def layercake(self, *arguments: str, fails: bool = False) -> None:
        """Runs a command as a person would, and shows it; one that is to fail must."""
        print(f"\n$ layercake {' '.join(arguments)}", flush=True)
        done = self.head.cli(*arguments, check=not fails)
        print(done.stdout + done.stderr, end="", flush=True)
        if fails and done.returncode == 0:
            raise HeadRunError(f"layercake {' '.join(arguments)}: this was to fail")

    def run(self) -> None:
        """From nothing to a rolled rack."""
        self.say("building two system images (systemd, Debian); kept for the next time")
        images = {name: systemd_image(name) for name in ("debian-1", "debian-2")}
        self.say(f"bringing up a rack of {len(self.rack.nodes)} machines, all off")
        self.rack.up()
        if self.recording is not None:
            self.recording.start()
        settings = self.cluster() if self.store == "rbd" else {}
        settings |= self.discovery.settings() if self.discovery is not None else {}
        self.say("making a head: certificate authority, minOS")
        self.head.init(settings)
        self.say("starting the head")
        self.head.start()
        for name, path in images.items():
            self.layercake("image", "add", name, str(path))
        if self.discovery is not None:
            self.discovery.add_image()
        inventory = self.directory / "rack.yaml"
        text = self.rack.inventory(images=["debian-1"])
        inventory.write_text(text if self.discovery is None else self.discovery.known(text))
        self.layercake("plan", str(inventory))
        self.say("applying the inventory: every node from power-off to a running image")
        start = time.monotonic()
        self.layercake("apply", str(inventory), "--yes", "--timeout", str(LIMIT_S))
        self.say(f"{NODES} nodes run their image {time.monotonic() - start:.1f} s after the inventory was applied")
        self.layercake("node", "list")
        self.rolls()
        self.layercake("node", "explain", "n1")
        self.layercake("power", "status", NAMES)
        self.in_cluster()
        if self.discovery is not None:
            self.discovery.run()
        self.excerpt()

    def rolls(self) -> None:
        """To a good image, one node first; then to a bad one, which the canary keeps from the others."""
        self.say("rolling the rack to the second image, one node first")
        start = time.monotonic()
        self.layercake("image", "roll", NAMES, "debian-2", "--canary", "1", "--timeout", str(LIMIT_S))
        self.ended("done")
        self.say(f"rolled in {time.monotonic() - start:.1f} s")
        self.layercake("node", "list")
        self.say("rolling to an image whose init ends at once: the canary is taken back by itself, the others are never touched")
        self.layercake("image", "add", "broken", str(crashing_image("broken")), "--no-systemd")
        careful = ("--canary", "1", "--on-failure", "rollback", "--timeout", str(LIMIT_S))
        self.layercake("image", "roll", NAMES, "broken", *careful, fails=True)
        self.ended("failed")
        self.layercake("roll", "status")
        self.head.wait_converged(120)
        self.layercake("node", "list")
        running = {name: [i["name"] for i in node["images"]["running"]] for name, node in self.head.nodes().items()}
        if any(images != ["debian-2"] for images in running.values()):
            raise HeadRunError(f"after the roll back the nodes run {running}")

    def ended(self, state: str) -> None:
        """The newest roll must have ended so. Raises HeadRunError."""
        roll = self.head.api("GET", "/v1/rolls")["rolls"][0]
        if roll["state"] != state:
            raise HeadRunError(f"roll {roll['id']} is {roll['state']}, and not {state}: {roll['reason']}")

    def cluster(self) -> dict[str, Any]:
        """Brings a Ceph up inside the rack's network; the head's settings for it."""
        self.say("starting a Ceph cluster: one monitor, one OSD")
        ceph = self.ceph = CephRun(self.rack)
        ceph.up()
        return {"images": {"store": "rbd", "conf": str(ceph.conf), "keyring": str(ceph.keyring("layercake")), "pool": POOL,
                           "node_keyring": str(ceph.keyring("node"))}}

    def in_cluster(self) -> None:
        """Shows the images where they are."""
        if self.ceph is not None:
            self.say("the images in the cluster, as its own tool sees them")
            client = ["-c", str(self.ceph.conf), "--id", "node", "--keyring", str(self.ceph.keyring("node"))]
            print(self.rack.run(["rbd", *client, "ls", "-l", POOL]).stdout, end="", flush=True)

    def excerpt(self) -> None:
        """The console of one machine, from firmware to container."""
        self.say("the console of n0, its main lines")
        for line in self.rack.console(0).splitlines():
            if any(word in line for word in ("SeaBIOS", "iPXE 1", "Layercake", "minos:", "agent:", "LAYERCAKE-IMAGE")):
                print("  " + line.strip()[:150])

    def hold(self) -> None:
        """Leaves it all up until interrupted."""
        self.say("the rack is yours; press Ctrl-C to take it down")
        print(f"  export LAYERCAKE_SOCKET={self.head.socket}\n  .venv/bin/layercake node list")
        print(f"  consoles: {self.rack.directory}/n*/console.log    network: ip netns exec {self.rack.namespace} bash", flush=True)
        done = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: done.set())
        done.wait()

    def close(self) -> None:
        """Takes everything away again."""
        self.say("cleaning up")
        self.head.close()
        if self.ceph is not None:
            self.ceph.down()
        if self.recording is not None:
            self.recording.stop()
            self.say(f"what each machine said and heard is in {self.pcap}: n0.pcap and so on, for wireshark and tcpdump -r")
        self.rack.down()


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the rack up until interrupted")
    parser.add_argument("--store", choices=("file", "rbd"), default="file", help="where the images are")
    parser.add_argument("--rack", choices=("qemu", "libvirt"), default="qemu",
                        help="what the machines are: QEMU processes with ipmi_sim, or libvirt domains with virtualbmc")
    parser.add_argument("--discovery", action="store_true", help="with two machines more, which no inventory knows")
    parser.add_argument("--pcap", type=Path, help="a directory: NAME.pcap there gets what machine NAME says and hears")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="layercake-demo-"))
    demo = Demo(directory, options.store, options.rack, options.pcap, discovery=options.discovery)
    try:
        demo.run()
        if options.keep:
            demo.hold()
    except (HeadRunError, RackError, CephError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        demo.close()
        shutil.rmtree(directory, ignore_errors=True)
    print("\ndone", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
