"""The demo (demo.py): a virtual rack, shown from power-off to running images, rolled, and taken
down."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leftovers
import sampleimages
from cephrun import POOL, CephError, CephRun
from discoverydemo import Discovery, machines
from headclient import HeadRunError
from headrun import HeadRun
from headsdemo import SeveralHeads
from progress import Progress
from sampleimages import crashing_image
from steps import ENDINGS
from vrack.owner import OWNER, claim
from vrack.rack import Rack, RackError
from vrack.recording import Recording
from vrack.spec import standard_nodes

from layercake.kraken.errors import LayercakeError

NODES = 4
NAMES = f"n[0-{NODES - 1}]"
IMAGES = ("debian-1", "debian-2")
LIMIT_S = 600.0
LOOK_S = 5.0
"""How long the head may take to say how its nodes are, in seconds."""
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[^\[])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""What a firmware's console writes beside text: it would clear the reader's screen."""


class Demo:
    """One run of the demo; `progress` shows what happens, and when."""

    def __init__(
        self,
        progress: Progress,
        directory: Path,
        store: str = "file",
        rack: str = "qemu",
        pcap: Path | None = None,
        *,
        discovery: bool = False,
        heads: int = 1,
    ) -> None:
        self.progress = progress
        self.directory = directory
        self.store = store
        self.ceph: CephRun | None = None
        nodes = [*standard_nodes(NODES), *machines(directory)] if discovery else NODES
        self.rack = Rack(directory / "rack", nodes, libvirt=rack == "libvirt")
        self.head = HeadRun(self.rack, directory / "head", disktools=discovery)
        self.discovery = (
            Discovery(self.rack, self.head, directory, self.layercake, progress.step)
            if discovery
            else None
        )
        self.several = (
            SeveralHeads(self.rack, self.head, directory, progress.step, progress.line)
            if heads > 1
            else None
        )
        self.pcap = pcap
        self.recording = Recording(self.rack, pcap) if pcap is not None else None
        self._images: subprocess.Popen[str] | None = None

    def layercake(self, *arguments: str, fails: bool = False) -> None:
        """Runs a command as a person would, and shows what it says as it says it; one that is to
        fail must."""
        command = f"layercake {' '.join(arguments)}"
        self.progress.line(f"\n$ {command}")
        status = self.head.follow(arguments, self.progress.line)
        if fails and status == 0:
            raise HeadRunError(f"{command}: this was to fail")
        if not fails and status != 0:
            raise HeadRunError(f"{command}: exit {status}")

    def run(self) -> None:
        """From nothing to a rolled rack."""
        self._images = sampleimages.started(self.directory, *IMAGES)
        self.progress.step(
            f"bringing up a rack of {len(self.rack.nodes)} machines, all off; two system images "
            "(systemd, Debian) are built meanwhile, and kept for the next time",
            0.02,
        )
        self.rack.up()
        if self.recording is not None:
            self.recording.start()
        settings = self.discovery.settings() if self.discovery is not None else {}
        if self.store == "rbd":
            settings["images"] = {**settings.get("images", {}), **self.cluster()}
        self.progress.step("making a head: certificate authority, minOS", 0.05)
        self.head.init(settings)
        self.progress.step("starting the head", 0.12)
        self.head.start()
        self.progress.doing("building the images", 0.15)
        if self.several is not None:
            self.several.up()
        images = json.loads(self.built(self._images))
        for name, path in images.items():
            self.layercake("image", "add", name, path)
        if self.discovery is not None:
            self.discovery.add_image()
        self.boot()
        if self.several is not None:
            self.several.fail_over(NAMES, "debian-2")
            return
        self.rolls()
        self.progress.step("what the head knows", 0.93)
        self.layercake("node", "explain", "n1")
        self.layercake("power", "status", NAMES)
        self.in_cluster()
        if self.discovery is not None:
            self.discovery.run()
        self.excerpt()

    def built(self, images: subprocess.Popen[str]) -> str:
        """What the process that builds the images printed. Raises HeadRunError with why it did
        not."""
        said, wrong = images.communicate()
        if images.returncode:
            raise HeadRunError(f"cannot build the images: {wrong.strip()}")
        return said

    def boot(self) -> None:
        """The inventory, planned and applied."""
        inventory = self.directory / "rack.yaml"
        text = self.rack.inventory(images=IMAGES[:1])
        inventory.write_text(text if self.discovery is None else self.discovery.known(text))
        self.layercake("plan", str(inventory))
        self.progress.step(
            "applying the inventory: every node from power-off to a running image", 0.2
        )
        self.progress.status = self.watching(0.2, 0.55)
        start = time.monotonic()
        self.layercake("apply", str(inventory), "--yes", "--timeout", str(LIMIT_S))
        self.progress.step(
            f"{NODES} nodes run their image {time.monotonic() - start:.1f} s after the inventory "
            "was "
            "applied",
            0.55,
        )
        self.layercake("node", "list")
        self.is_running()

    def is_running(self) -> None:
        """Asks systemd in each container. Raises HeadRunError if one is not running."""
        for name in self.head.nodes():
            image = self.head.nodes()[name]["images"]["running"][0]["name"]
            self.layercake(
                "node",
                "exec",
                name,
                "--container",
                image,
                "--",
                "systemctl",
                "is-system-running",
                "--wait",
            )

    def watching(self, begin: float, end: float) -> Callable[[], str]:
        """What the nodes are at, and how many are there: the share that is done goes from `begin`
        to `end`."""

        def nodes_now() -> str:
            try:
                answer = self.head.api("GET", "/v1/nodes", timeout=LOOK_S)
            except (OSError, HeadRunError, http.client.HTTPException) as error:
                return f"the head does not answer: {str(error).partition(chr(10))[0]}"
            nodes = {node["name"]: node for node in answer["nodes"]}
            there = sum(node["status"] == "converged" for node in nodes.values())
            self.progress.done = max(
                self.progress.done, begin + (end - begin) * there / max(1, len(nodes))
            )
            others = [
                f"{name} {node['status_text']}"
                for name, node in nodes.items()
                if node["status"] != "converged"
            ]
            return f"{there} of {len(nodes)} nodes converged" + (
                f"; {', '.join(others)}" if others else ""
            )

        return nodes_now

    def rolls(self) -> None:
        """To a good image, one node first; then to a bad one, which the canary keeps from the
        others."""
        self.progress.step("rolling the rack to the second image, one node first", 0.55)
        self.progress.status = self.watching(0.55, 0.75)
        start = time.monotonic()
        self.layercake(
            "image", "roll", NAMES, "debian-2", "--canary", "1", "--timeout", str(LIMIT_S)
        )
        self.ended("done")
        self.progress.step(f"rolled in {time.monotonic() - start:.1f} s", 0.75)
        self.layercake("node", "list")
        self.progress.step(
            "rolling to an image whose init ends at once: the canary is taken back by itself, the "
            "others are "
            "never touched",
            0.75,
        )
        self.progress.status = self.watching(0.75, 0.9)
        self.layercake("image", "add", "broken", str(crashing_image("broken")), "--no-systemd")
        careful = ("--canary", "1", "--on-failure", "rollback", "--timeout", str(LIMIT_S))
        self.layercake("image", "roll", NAMES, "broken", *careful, fails=True)
        self.ended("failed")
        self.layercake("roll", "status")
        self.head.wait_converged(120)
        self.layercake("node", "list")
        running = {
            name: [i["name"] for i in node["images"]["running"]]
            for name, node in self.head.nodes().items()
        }
        if any(images != ["debian-2"] for images in running.values()):
            raise HeadRunError(f"after the roll back the nodes run {running}")

    def ended(self, state: str) -> None:
        """The newest roll must have ended so. Raises HeadRunError."""
        roll = self.head.api("GET", "/v1/rolls")["rolls"][0]
        if roll["state"] != state:
            raise HeadRunError(
                f"roll {roll['id']} is {roll['state']}, and not {state}: {roll['reason']}"
            )

    def cluster(self) -> dict[str, Any]:
        """Brings a Ceph up inside the rack's network; the head's settings of images for it."""
        self.progress.step("starting a Ceph cluster: one monitor, one OSD")
        ceph = self.ceph = CephRun(self.rack)
        ceph.up()
        return {
            "store": "rbd",
            "conf": str(ceph.conf),
            "keyring": str(ceph.keyring("layercake")),
            "pool": POOL,
            "node_keyring": str(ceph.keyring("node")),
        }

    def in_cluster(self) -> None:
        """Shows the images where they are."""
        if self.ceph is not None:
            self.progress.step("the images in the cluster, as its own tool sees them")
            client = [
                "-c",
                str(self.ceph.conf),
                "--id",
                "node",
                "--keyring",
                str(self.ceph.keyring("node")),
            ]
            self.progress.line(self.rack.run(["rbd", *client, "ls", "-l", POOL]).stdout.rstrip())

    def excerpt(self) -> None:
        """The console of one machine, from firmware to container."""
        self.progress.step("the console of n0, its main lines", 0.95)
        for line in _ESCAPES.sub("", self.rack.console(0)).splitlines():
            if any(
                word in line
                for word in (
                    "SeaBIOS",
                    "iPXE 1",
                    "Layercake",
                    "minos:",
                    "agent:",
                    "LAYERCAKE-IMAGE",
                )
            ):
                self.progress.line("  " + line.strip()[:150])

    def hold(self) -> None:
        """Leaves it all up until interrupted."""
        self.progress.step("the rack is yours; press Ctrl-C to take it down", 1.0)
        self.progress.line(
            f"  export LAYERCAKE_SOCKET={self.head.socket}\n  .venv/bin/layercake node list"
        )
        self.progress.line(
            f"  consoles: {self.rack.directory}/n*/console.log    network: ip netns exec "
            f"{self.rack.namespace} bash"
        )
        self.progress.status = lambda: ""
        done = threading.Event()
        for number in ENDINGS:
            signal.signal(number, lambda *_: done.set())
        done.wait()

    def close(self) -> None:
        """Takes everything away again, whatever of it fails."""
        self.progress.step("cleaning up", 0.97)
        with contextlib.ExitStack() as stack:  # the last one first
            stack.callback(self.rack.down)
            if self.recording is not None:
                stack.callback(
                    self.progress.line,
                    f"network traffic: {self.pcap}/n0.pcap and so on, for wireshark and tcpdump -r",
                )
                stack.callback(self.recording.stop)
            if self.ceph is not None:
                stack.callback(self.ceph.down)
            if self.several is not None:
                stack.callback(self.several.close)
            stack.callback(self.head.close)
            if self._images is not None and self._images.poll() is None:
                self._images.kill()
                self._images.communicate()


def show(progress: Progress, options: argparse.Namespace) -> int:
    """One run, and its end whatever happens; the exit status."""
    directory = Path(tempfile.mkdtemp(prefix=leftovers.DEMO_PREFIX))
    status = 0
    try:
        claim(directory / OWNER)
        demo = Demo(
            progress,
            directory,
            options.store,
            options.rack,
            options.pcap,
            discovery=options.discovery,
            heads=options.heads,
        )
        try:
            demo.run()
            if options.keep:
                demo.hold()
        finally:
            for number in ENDINGS:  # it is ending already
                signal.signal(number, signal.SIG_IGN)
            demo.close()
    except (LayercakeError, HeadRunError, RackError, CephError) as error:
        progress.line(f"demo: {error}")
        status = 1
    except KeyboardInterrupt:
        progress.line("demo: interrupted; all of it is taken down")
        status = 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if status == 0:
        progress.line("\ndone")
    return status
