"""What a cut of the network does to a boot: `python vm-testbed/cuts.py --path bios --phase kernel
--seconds 20`.

One machine boots by a path; its cable is pulled in a phase of that, put back after so many seconds,
and it is told whether, after how long and by how many starts it joined all the same. For 0 seconds
the machine is reset in that phase, and the cable stays (before the offer: nothing is done). Without
options all paths and phases are tried. Prints a table, and writes it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from headclient import HeadClient, HeadRunError
from headrun import HeadRun
from patience import patience
from vrack.rack import Rack, RackError
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec

SETTINGS = {
    "sync": {"hello_s": 2.0, "dead_s": 10.0, "probe_s": 4.0},
    "power": {"poll_s": 4.0},
    "boot": {"attempts": 3, "join_s": 180.0, "step_s": 90.0},
}
LIMIT_S = 700.0
NODE = "n0"
_NO_PXE4, _NO_PXE6 = (
    ("-fw_cfg", f"name=opt/org.tianocore/IPv{version}PXESupport,string=n") for version in (4, 6)
)
_HTTP_BOOT = (*_NO_PXE4, *_NO_PXE6)
_OWN = VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE)
PATHS: dict[str, tuple[str, VmSpec]] = {
    "bios": ("BIOS, iPXE in the card", VmSpec(Firmware.BIOS, BmcKind.IPMI)),
    "pxe": ("BIOS, PXE by TFTP", VmSpec(Firmware.BIOS, BmcKind.IPMI, card_ipxe=False)),
    "uefi": ("UEFI, own PXE by TFTP", _OWN),
    "six": ("UEFI, PXE by IPv6", replace(_OWN, more=_NO_PXE4)),
    "media": (
        "UEFI, virtual media",
        replace(_OWN, nic="virtio-net-pci,romfile=", nic_rom=NicRom.IPXE, boot="media"),
    ),
    "http": ("UEFI, HTTP Boot", replace(_OWN, more=_HTTP_BOOT)),
    "secure": ("UEFI, Secure Boot, all by TFTP", replace(_OWN, secure_boot=True, memory_mib=768)),
    "uri": (
        "UEFI, Secure Boot, HTTP Boot of a URI",
        replace(_OWN, secure_boot=True, memory_mib=768, boot="uri"),
    ),
}
"""{name: (what it is, the machine)}."""


@dataclass(frozen=True, slots=True)
class Phase:
    """When the cable is pulled. `step`: a step of the boot (`boot.steps`) is seen, of which a
    `client` had a part, if that is said; `console`: the machine has written that."""

    name: str
    step: str = ""
    client: str = ""
    console: str = ""


PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        Phase("offer"),
        Phase("nbp", "boot.nbp-started"),
        Phase("script", "boot.offer-sent", "iPXE"),
        Phase("kernel", "boot.kernel-started"),
        Phase("initrd", "boot.initrd-started"),
        Phase("start", "boot.initrd-sent"),
        Phase("join", console="init: network"),
    )
}
"""offer: before the first; start: all is sent, the kernel starts; join: its network is up, and the
agent begins."""
NOT_THERE = {
    ("bios", "nbp"),
    ("media", "nbp"),
    ("secure", "script"),
    ("uri", "script"),
    ("uri", "kernel"),
    ("uri", "initrd"),
}
"""An iPXE that is there already gets its script at once; the image of HTTP Boot has all in it; GRUB
asks for its script without DHCP, in the same breath as for itself."""
_TELLING = (
    "boot.transfer-broken",
    "boot.begun-anew",
    "boot.script-refused",
    "boot.stalled",
    "quarantine.set",
    "join.disputed",
)


@dataclass(frozen=True, slots=True)
class Result:
    """`joined_s` from power-on, None if it never did; `after_s` is how long that was after the
    cable was back; `starts` is how often the machine was started; `told` are the kinds of events
    that say something went wrong."""

    path: str
    phase: str
    cut_s: float
    joined_s: float | None
    after_s: float | None
    starts: int
    told: tuple[str, ...]

    def row(self) -> str:
        """A line of the table."""
        joined = "never" if self.joined_s is None else f"{self.joined_s:.0f}"
        after = "-" if self.after_s is None else f"{self.after_s:.0f}"
        told = ", ".join(f"`{kind}`" for kind in self.told) or "-"
        cut = (
            f"{self.cut_s:.0f}" if self.cut_s else "a reset" if self.phase != "offer" else "nothing"
        )
        return (
            f"| {PATHS[self.path][0]} | {self.phase} | {cut} | {joined} | {after} | "
            f"{self.starts} | {told} |"
        )


HEADER = (
    "| Path | Cut in | for (s) | Joined after power-on (s) | after the cable was back (s) | Starts "
    "| Told |\n"
    "|---|---|---|---|---|---|---|"
)


class Cutter:
    """Cuts the boot of machine `index` of a rack, whose head knows it as `node`. The node is to be
    off, and ends up."""

    def __init__(self, rack: Rack, head: HeadClient, index: int = 0, node: str = NODE) -> None:
        self._rack, self._head, self._index, self._node = rack, head, index, node

    def _steps(self, since: float) -> list[dict[str, Any]]:
        """Those of this boot: the service keeps the steps of the last one until the next begins."""
        (answer,) = self._head.api("POST", "/v1/calls/boot.steps", {"range": self._node})["answers"]
        report = answer["answer"] if answer["ok"] else {"opened_s_ago": None, "steps": []}
        opened = report["opened_s_ago"]
        return list(report["steps"]) if opened is not None and time.time() - opened > since else []

    def _reached(self, phase: Phase, since: float, console: int) -> bool:
        if phase.console:
            return phase.console in self._rack.console(self._index)[console:]
        started = phase.step.replace("-started", "-sent")
        return any(
            step["kind"] in (phase.step, started) and step["data"].get("client", "") == phase.client
            for step in self._steps(since)
        )

    def _since(self, kind: str, start: float) -> list[dict[str, Any]]:
        return [event for event in self._head.history(self._node, kind) if event["at"] >= start]

    def _watch(self, what: str, seen: Callable[[], Any], limit_s: float) -> None:
        """Looks as often as it can: a transfer may be over in a tenth of a second. Raises
        HeadRunError."""
        end = time.monotonic() + patience(limit_s)
        while not seen():
            if time.monotonic() > end:
                raise HeadRunError(
                    f"waited {limit_s:.0f} s in vain: {what}\n{self._head.describe()}"
                )
            time.sleep(0.01)

    def run(self, path: str, phase: Phase, seconds: float) -> Result:
        """One boot with one cut. Raises HeadRunError if the phase was never reached."""
        start, starts = time.time(), self._rack.machine(self._index)["starts"]
        console = len(self._rack.console(self._index))
        if seconds and not phase.step and not phase.console:
            self._rack.unplug(self._index)
        try:
            self._head.api("POST", "/v1/nodes/state", {"range": self._node, "state": "up"})
            self._watch("it is switched on", lambda: self._rack.vm_alive(self._index), 60)
            on = time.time()
            if phase.step or phase.console:
                self._watch(
                    f"it comes to {phase.name}", lambda: self._reached(phase, start, console), 240
                )
                if seconds:
                    self._rack.unplug(self._index)
                else:
                    self._rack.reset(self._index)
            time.sleep(seconds)
        finally:
            self._rack.plug(self._index)
        back = time.time()

        def over() -> bool:
            return bool(self._since("node.joined", start) or self._since("quarantine.set", start))

        try:
            self._head.wait("it joins, or is given up", over, LIMIT_S)
        except HeadRunError as error:
            print(error, file=sys.stderr)
        joined = self._since("node.joined", start)
        at = joined[-1]["at"] if joined else None
        told = tuple(kind for kind in _TELLING if self._since(kind, start))
        return Result(
            path,
            phase.name,
            seconds,
            None if at is None else at - on,
            None if at is None else at - back,
            self._rack.machine(self._index)["starts"] - starts,
            told,
        )

    def off(self) -> None:
        """The machine is off, and whatever went wrong is forgotten."""
        self._head.api("POST", "/v1/nodes/state", {"range": self._node, "state": "off"})
        self._head.api("POST", "/v1/nodes/clear", {"range": self._node})
        self._head.wait("it is off", lambda: not self._rack.vm_alive(self._index), 120)


def of_path(
    path: str, phases: Sequence[str], cuts: Sequence[float], say: Callable[[Result], None]
) -> None:
    """All cuts of one path, on a rack of one machine."""
    with tempfile.TemporaryDirectory(prefix="layercake-cuts-") as directory:
        rack = Rack(Path(directory) / "rack", [PATHS[path][1]])
        head = HeadRun(rack, Path(directory) / "head")
        try:
            rack.up()
            head.init(SETTINGS)
            if PATHS[path][1].boot == "media":
                head.cli("boot-media", str(head.data / "boot-media.img"))
            head.start()
            inventory = yaml.safe_load(rack.inventory())
            inventory["defaults"]["state"] = "off"
            head.apply(yaml.safe_dump(inventory))
            cutter = Cutter(rack, head)
            for name in phases:
                for seconds in cuts:
                    if (path, name) not in NOT_THERE:
                        cutter.off()
                        say(cutter.run(path, PHASES[name], seconds))
        finally:
            head.close()
            rack.down()


def main(argv: Sequence[str]) -> int:
    """The command line; returns the exit status: 1 if a machine was started again and again and
    never joined."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--path",
        action="append",
        choices=list(PATHS),
        help="by which path; more than once (default: all)",
    )
    parser.add_argument(
        "--phase",
        action="append",
        choices=list(PHASES),
        help="in which phase; more than once (default: all)",
    )
    parser.add_argument(
        "--seconds",
        action="append",
        type=float,
        help="for how long, 0: a reset; more than once (default: 20)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parents[1] / "build/cuts.md"
    )
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results: list[Result] = []

    def say(result: Result) -> None:
        results.append(result)
        print(result.row(), flush=True)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join([HEADER, *(each.row() for each in results)]) + "\n")

    print(HEADER, flush=True)
    try:
        for path in options.path or PATHS:
            of_path(path, options.phase or list(PHASES), options.seconds or [20.0], say)
    except (HeadRunError, RackError, OSError, subprocess.SubprocessError) as error:
        print(f"cuts: {error}", file=sys.stderr)
        return 1
    return 0 if all(result.joined_s is not None for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
