"""Puts a switch of ours between machines of a rack and its bridges (switch.py), and takes it away
again: for faults of the network, for VLANs, and for recordings of boots."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from patience import patience

from vrack import netns
from vrack.around import Around
from vrack.rack import Rack, RackError
from vrack.spec import BRIDGE
from vrack.switch import Faults, Port

_HERE = Path(__file__).resolve().parents[1]
_LIMIT_S = 20.0
UNTAGGED = 1
"""The VLAN of the rack's own bridge."""


class FaultyNetwork(Around):
    """The switch around the machines in `slots` of a rack that is up. `with FaultyNetwork(rack,
    slots, faults):`.

    `faults` are of each machine's link. Each bridge of `uplinks`, {VLAN: bridge}, is a port in its
    VLAN; `vlans`, {slot: VLAN}, are machines whose frames without tags are of another VLAN than 1,
    `trunks`, {slot: VLANs}, those whose tags are let through. With `records`, a directory,
    NAME.pcap there gets what each machine says and hears. Faults are drawn by `seed`.
    """

    def __init__(
        self,
        rack: Rack,
        slots: Sequence[int],
        faults: Faults | None = None,
        *,
        records: Path | None = None,
        seed: int = 1,
        uplinks: Mapping[int, str] | None = None,
        vlans: Mapping[int, int] | None = None,
        trunks: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        super().__init__(rack, "a faulty network")
        self._slots, self._faults, self._seed = slots, faults or Faults(), seed
        self._uplinks, self._vlans, self._trunks = (
            dict(uplinks or {UNTAGGED: BRIDGE}),
            dict(vlans or {}),
            dict(trunks or {}),
        )
        self._records = records
        self._process: subprocess.Popen[str] | None = None
        self._masters: dict[int, str] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="vrack-switch-"))
        self.log = rack.directory / "switch.log"
        self.counts: dict[str, int] = {}
        """What was counted: frames lost, doubled, late, undelivered, of a foreign VLAN; when it was
        asked last."""

    def up(self) -> None:
        """Takes the machines from their bridges; returns when the switch forwards. Raises
        RackError."""
        links = {
            link["ifname"]: link.get("master", "")
            for link in json.loads(self._rack.run(["ip", "-j", "link"]).stdout)
        }
        self._masters = {slot: links[netns.tap(slot)] for slot in self._slots}
        # One segment for each frame: what is lost is a frame, not forty that the kernel has put
        # together. No address is wanted.
        self._batch(
            [
                line
                for vlan, bridge in self._uplinks.items()
                for line in (
                    f"link add swout{vlan} gso_max_segs 1 type veth peer name swin{vlan} "
                    "gso_max_segs 1",
                    f"link set swin{vlan} addrgenmode none promisc on up",
                    f"link set swout{vlan} master {bridge} up",
                )
            ]
        )
        self._batch(
            [
                line
                for slot in self._slots
                for line in (
                    f"link set {netns.tap(slot)} nomaster",
                    f"link set {netns.tap(slot)} addrgenmode none promisc on",
                )
            ]
        )
        names = {slot: self._rack.nodes[slot].name for slot in self._slots}
        ports = [
            Port(
                names[slot],
                netns.tap(slot),
                self._vlans.get(slot, UNTAGGED),
                tuple(self._trunks.get(slot, ())),
            )
            for slot in self._slots
        ] + [Port(f"up{vlan}", f"swin{vlan}", vlan) for vlan in self._uplinks]
        if self._records is not None:
            self._records.mkdir(parents=True, exist_ok=True)
        config = self._scratch / "switch.json"
        config.write_text(
            json.dumps(
                {
                    "ports": [asdict(port) for port in ports],
                    "faults": {name: asdict(self._faults) for name in names.values()},
                    "seed": self._seed,
                    "records": str(self._records or ""),
                    "control": str(self._scratch / "control"),
                }
            )
        )
        with self.log.open("w") as log:
            self._process = self._rack.exec(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    sys.executable,
                    "-m",
                    "vrack.switch",
                    str(config),
                ],
                env={"PYTHONPATH": str(_HERE)},
                stdout=log,
                stderr=log,
            )
        limit = time.monotonic() + patience(_LIMIT_S)
        while "forwards" not in self.log.read_text():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise RackError(
                    "cannot make a faulty network: the switch does not "
                    f"run\n{self.log.read_text()[-1000:]}"
                )
            time.sleep(0.05)

    def set(self, slot: int, **changes: Any) -> None:
        """Other faults of one machine's link from now on; what is not said is as at first."""
        faults = replace(self._faults, **changes)
        self._tell({"faults": {self._rack.nodes[slot].name: asdict(faults)}})

    def look(self) -> dict[str, int]:
        """What was counted up to now."""
        self._tell({})
        return self.counts

    def _tell(self, words: Mapping[str, Any]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asks:
            here = self._scratch / "answer"  # a path: other names are of one network namespace only
            here.unlink(missing_ok=True)
            asks.bind(str(here))
            asks.settimeout(_LIMIT_S)
            asks.connect(str(self._scratch / "control"))
            asks.send(json.dumps(words).encode())
            self.counts = json.loads(asks.recv(1 << 16))

    def down(self) -> None:
        """Puts the machines back to where they were; the recordings are whole then. May be called
        twice."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            self._tell({"end": True})
            process.wait(_LIMIT_S)
        masters, self._masters = self._masters, {}
        has = {
            line.split(":")[1].strip().partition("@")[0]
            for line in self._rack.run(["ip", "-o", "link"]).stdout.splitlines()
        }
        self._batch(
            [
                *(f"link del swout{vlan}" for vlan in self._uplinks if f"swout{vlan}" in has),
                *(
                    f"link set {netns.tap(slot)} master {bridge}"
                    for slot, bridge in masters.items()
                    if bridge
                ),
            ]
        )
        shutil.rmtree(self._scratch, ignore_errors=True)
