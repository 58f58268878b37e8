"""The one process that owns everything that runs in a rack: machines and BMCs are its children.

Started inside the rack's network namespace with its standard input held open by whoever made the
rack. When that closes (an orderly end, or its maker was killed) it ends its children, deletes the
namespace and exits, so a rack cannot be left behind. BMCs ask it to switch machines by one JSON
line on a Unix socket: {"op": "power", "node": "n0", "want": "on"}.

    python -m vrack.hypervisor RACK.json
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import patience

from vrack import netns
from vrack.libvirt_room import LibvirtRoom
from vrack.metal import Machine, end, spawn
from vrack.serial_line import SerialLine

READY_LIMIT_S, LIBVIRT_READY_LIMIT_S = 30.0, 120.0

# RMCP class IPMI, session-less, Get Channel Authentication Capabilities for this channel,
# administrator (IPMI 2.0, table 22-15).
_IPMI_PROBE = bytes.fromhex("0600ff07000000000000000000092018c88100388e04b5")


@dataclass(frozen=True, slots=True)
class BmcProcess:
    """A BMC that is to run: its command, and where it answers. `kind` is "ipmi" (UDP) or "redfish"
    (TCP)."""

    node: str
    kind: str
    argv: Sequence[str]
    address: str
    port: int
    log: Path


class Hypervisor:
    """Machines and BMCs by node name."""

    def __init__(self, machines: Sequence[Machine], bmcs: Sequence[BmcProcess]) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.bmcs = bmcs
        self._running: dict[str, Any] = {}

    def start(self, limit_s: float = READY_LIMIT_S) -> None:
        """Starts the BMCs and waits until each answers. Raises RuntimeError naming the first that
        does not."""
        for bmc in self.bmcs:
            self._running[bmc.node] = spawn(bmc.argv, bmc.log)
        limit = time.monotonic() + patience(limit_s)
        for bmc in self.bmcs:
            while not (_ipmi_answers if bmc.kind == "ipmi" else _tcp_answers)(
                bmc.address, bmc.port
            ):
                if self._running[bmc.node].poll() is not None or time.monotonic() > limit:
                    tail = bmc.log.read_text(errors="replace")[-1000:]
                    raise RuntimeError(
                        f"cannot start the BMC of {bmc.node}: no answer on "
                        f"{bmc.address}:{bmc.port}\n{tail}"
                    )
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends BMCs first, so that none switches a machine on again, then the machines."""
        for process in self._running.values():
            end(process)
        for machine in self.machines.values():
            machine.off()

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carries out one request. Raises KeyError or ValueError for one that makes no sense,
        OSError if QEMU cannot be run."""
        machine = self.machines[str(request["node"])]
        if request["op"] == "power":
            machine.medium = str(request.get("medium", ""))
            actions = {
                "on": machine.on,
                "off": machine.off,
                "reset": machine.reset,
                "soft": machine.soft_off,
            }
            actions[str(request["want"])]()
        elif request["op"] == "boot":
            machine.boot, machine.uri = str(request["device"]), str(request.get("uri", ""))
        elif request["op"] != "state":
            raise ValueError(f"unknown request {request['op']!r}")
        pid = machine.pid
        return {
            "power": "off" if pid is None else "on",
            "pid": pid,
            "boot": machine.boot,
            "uri": machine.uri,
            "last_boot": machine.last_boot,
            "starts": machine.starts,
            "bmc_pid": self._running[machine.name].pid,
        }


def _ipmi_answers(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect((address, port))
            probe.send(_IPMI_PROBE)
            return len(probe.recv(1024)) > 16
        except OSError:
            return False


def _tcp_answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except OSError:
        return False
    return True


async def _serve(
    hypervisor: Hypervisor, path: str, lines: Sequence[SerialLine], stdin: int
) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), 5)
            answer = {"ok": True, **hypervisor.handle(json.loads(line))}
        except (KeyError, ValueError, OSError, TimeoutError) as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(stdin, done.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    server = await asyncio.start_unix_server(client, path)
    for line in lines:
        await line.serve()
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    await done.wait()
    server.close()
    for line in lines:
        line.close()


def main(path: Path) -> int:
    """Runs the rack that the JSON file describes until standard input closes."""
    rack = json.loads(path.read_text())
    machines = [Machine(m["name"], m["argv"], Path(m["directory"])) for m in rack["machines"]]
    bmcs = [
        BmcProcess(b["node"], b["kind"], b["argv"], b["address"], b["port"], Path(b["log"]))
        for b in rack["bmcs"]
    ]
    lines = [SerialLine(Path(m["directory"])) for m in rack["machines"] if m["line"]]
    hypervisor = Hypervisor(machines, bmcs)
    libvirt = rack.get("libvirt")
    room = (
        LibvirtRoom(Path(libvirt["directory"]), rack["accel"], libvirt["domains"])
        if libvirt
        else None
    )
    try:
        if room is not None:
            room.start()
        for line in lines:
            line.open()
        hypervisor.start(LIBVIRT_READY_LIMIT_S if room else READY_LIMIT_S)
        asyncio.run(_serve(hypervisor, rack["socket"], lines, sys.stdin.fileno()))
    except RuntimeError as error:
        sys.stdout.write(json.dumps({"ready": False, "error": str(error)}) + "\n")
        sys.stdout.flush()
        return 1
    finally:
        hypervisor.stop()
        if room is not None:
            room.stop()
        Path(rack["socket"]).unlink(missing_ok=True)
        netns.destroy(rack["namespace"], spare=(os.getpid(),))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
