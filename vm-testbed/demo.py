"""`make demo`: a virtual rack from power-off to running images, a roll to a second image, and away again.

Everything is real but the metal: firmware, BMC protocols, kernel, minOS, containers. `--keep` leaves it up to play with.
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

from headrun import HeadRun, HeadRunError
from sampleimages import systemd_image
from vrack.rack import Rack, RackError

NODES = 4
LIMIT_S = 600.0


class Demo:
    """One run of the demo; `say` prints what happens and when."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started = time.monotonic()
        self.rack = Rack(directory / "rack", NODES)
        self.head = HeadRun(self.rack, directory / "head")

    def say(self, text: str) -> None:
        print(f"\n=== {time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def layercake(self, *arguments: str) -> None:
        """Runs a command as a person would, and shows it."""
        print(f"\n$ layercake {' '.join(arguments)}", flush=True)
        print(self.head.cli(*arguments).stdout, end="", flush=True)

    def run(self) -> None:
        """From nothing to a rolled rack."""
        self.say("building two system images (systemd, Debian); kept for the next time")
        images = {name: systemd_image(name) for name in ("debian-1", "debian-2")}
        self.say(f"bringing up a rack of {NODES} machines, all off")
        self.rack.up()
        self.say("making a head: certificate authority, minOS")
        self.head.init()
        self.say("starting the head")
        self.head.start()
        for name, path in images.items():
            self.layercake("image", "add", name, str(path))
        inventory = self.directory / "rack.yaml"
        inventory.write_text(self.rack.inventory(images=["debian-1"]))
        self.layercake("plan", str(inventory))
        self.say("applying the inventory: every node from power-off to a running image")
        start = time.monotonic()
        self.layercake("apply", str(inventory), "--yes", "--timeout", str(LIMIT_S))
        self.say(f"{NODES} nodes run their image {time.monotonic() - start:.1f} s after the inventory was applied")
        self.layercake("node", "list")
        self.say("rolling the rack to the second image")
        start = time.monotonic()
        names = f"n[0-{NODES - 1}]"
        self.layercake("image", "roll", names, "debian-2", "--timeout", "120")
        self.say(f"rolled in {time.monotonic() - start:.1f} s")
        self.layercake("node", "list")
        self.layercake("node", "explain", "n1")
        self.layercake("power", "status", names)
        self.excerpt()

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
        self.rack.down()


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the rack up until interrupted")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="layercake-demo-"))
    demo = Demo(directory)
    try:
        demo.run()
        if options.keep:
            demo.hold()
    except (HeadRunError, RackError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        demo.close()
        shutil.rmtree(directory, ignore_errors=True)
    print("\ndone", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
