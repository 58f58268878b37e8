"""A second network for some machines of a rack, behind a router in a network namespace of its own
with a real DHCP relay (Debian's isc-dhcp-relay). The head has no leg in it: all that its machines
hear of the head is routed.

    machines - br1 - (rdown, 10.120.0.1) router (rup, 10.99.0.254) - br0 - head
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from patience import patience

from vrack import netns
from vrack.around import Around
from vrack.rack import Rack, RackError
from vrack.spec import BRIDGE, HEAD_ADDRESS

FAR, NAME = "br1", "far"
SUBNET, ROUTER, UPLINK = "10.120.0.0/24", "10.120.0.1", "10.99.0.254"
DOMAIN, MTU = "far.test", 1400
_READY, _READY_LIMIT_S = "Sending on   Socket/fallback", 20.0
_ROUTER = f"""
until ip link show rup >/dev/null 2>&1 && ip link show rdown >/dev/null 2>&1; do sleep 0.05; done
set -e
ip link set lo up
ip addr add {UPLINK}/24 dev rup
ip addr add {ROUTER}/24 dev rdown
ip link set rup up
ip link set rdown up
echo 1 > /proc/sys/net/ipv4/ip_forward
exec dhcrelay -4 -d --no-pid -a -id rdown -iu rup {HEAD_ADDRESS}
"""


def address(index: int) -> str:
    """The address in this network of the machine in a slot, for its VmSpec."""
    return f"10.120.0.{50 + index}"


class RelayedNetwork(Around):
    """The network around the machines in `slots` of a rack that is up. `with RelayedNetwork(rack,
    slots):` makes it and takes it away again; the router's process ends with the one that made it.
    Everything in it is made new: what is left of one does not matter to the next."""

    def __init__(self, rack: Rack, slots: Sequence[int]) -> None:
        super().__init__(rack, "a relayed network")
        self._slots = slots
        self._router: subprocess.Popen[Any] | None = None
        self.log = rack.directory / "relay.log"

    def up(self) -> None:
        """Makes bridge, router and relay; returns when the relay listens. Raises RackError."""
        if shutil.which("dhcrelay") is None:
            raise RackError(
                "cannot make a relayed network: dhcrelay is missing; install isc-dhcp-relay"
            )
        with self.log.open("w") as log:
            self._router = self._rack.exec(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", _ROUTER],
                stdout=log,
                stderr=log,
            )
        limit = time.monotonic() + patience(_READY_LIMIT_S)
        self._until_apart(self._router.pid, limit)
        self._batch(
            [
                f"link add {FAR} type bridge stp_state 0 forward_delay 0",
                f"link set {FAR} up",
                "link add up-head type veth peer name rup",
                "link add down-head type veth peer name rdown",
                f"link set up-head master {BRIDGE} up",
                f"link set down-head master {FAR} up",
                f"link set rup netns {self._router.pid}",
                f"link set rdown netns {self._router.pid}",
                *(f"link set {netns.tap(slot)} master {FAR}" for slot in self._slots),
                f"route add {SUBNET} via {UPLINK}",
            ]
        )
        while _READY not in self.log.read_text():
            if self._router.poll() is not None or time.monotonic() > limit:
                raise RackError(
                    "cannot make a relayed network: the relay does not "
                    f"listen\n{self.log.read_text()[-1000:]}"
                )
            time.sleep(0.05)

    def _until_apart(self, pid: int, limit: float) -> None:
        """Waits until the router is in a namespace of its own: neither in ours, where it begins,
        nor in the rack's."""
        others = {
            Path("/proc/self/ns/net").stat().st_ino,
            (netns.RUN / self._rack.namespace).stat().st_ino,
        }
        while Path(f"/proc/{pid}/ns/net").stat().st_ino in others:
            if time.monotonic() > limit:
                raise RackError("cannot make a relayed network: the router does not start")
            time.sleep(0.02)

    def down(self) -> None:
        """Puts the machines back, and ends the router with its namespace. May be called twice."""
        router, self._router = self._router, None
        if router is None:
            return
        # Links before the router: those that end in a namespace go with it, but not at once.
        has = {
            line.split(":")[1].strip().partition("@")[0]
            for line in self._rack.run(["ip", "-o", "link"]).stdout.splitlines()
        }
        routed = SUBNET in self._rack.run(["ip", "route"]).stdout
        self._batch(
            [
                *([f"route del {SUBNET}"] if routed else []),
                *(f"link set {netns.tap(slot)} master {BRIDGE}" for slot in self._slots),
                *(f"link del {name}" for name in (FAR, "up-head", "down-head") if name in has),
            ]
        )
        router.kill()
        router.wait()

    def inventory(self, text: str) -> str:
        """A rack's inventory with this network in it."""
        data = yaml.safe_load(text)
        data.setdefault("networks", {})[NAME] = {
            "subnet": SUBNET,
            "gateway": ROUTER,
            "domain": DOMAIN,
            "mtu": MTU,
            "dns": [HEAD_ADDRESS],
            "routes": {"10.130.0.0/16": ROUTER},
        }
        return str(yaml.safe_dump(data, sort_keys=False))
