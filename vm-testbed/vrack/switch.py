"""A switch in user space, between machines of a rack and its bridges: it loses, doubles, reorders,
delays and cuts, knows VLANs, and records what each machine says and hears. Runs in the rack's
network namespace: `python -m vrack.switch CONFIG`, CONFIG is JSON.

The kernels of test machines have neither netem nor 802.1Q (IEEE 802.1Q-2018 section 9 has the tag).
Frames are read from packet sockets on the machines' taps, with the header that says what the kernel
still has to do with them (PACKET_VNET_HDR).
"""

from __future__ import annotations

import heapq
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ETH_P_ALL, _SOL_PACKET, _AUXDATA, _VNET_HDR, _OUTGOING = 3, 263, 8, 15, 4
_HEADER = 10
"""Bytes of struct virtio_net_hdr, which goes before each frame."""
_LARGEST = 1 << 17
_AUX, _VNET = struct.Struct("=IIIHHHH"), struct.Struct("=BBHHHH")
_VLAN_VALID = 0x10
_TAG = b"\x81\x00"
_AT_ONCE = 64
_BUFFER = 8 << 20


@dataclass(slots=True)
class Faults:
    """What becomes of one machine's frames, each way: `loss`, `duplicate` and `reorder` are
    percent, `delay_ms` and `jitter_ms` milliseconds; a reordered frame comes `late_ms` later than
    the others. `cut`: nothing passes."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    late_ms: float = 5.0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Port:
    """A link of the switch. `name` is that of the machine, `device` the network device that frames
    are read from and written to. Frames without a tag are of `vlan`; `tagged` are the VLANs that
    come and go with their tags."""

    name: str
    device: str
    vlan: int = 1
    tagged: Sequence[int] = ()


def opened(device: str) -> socket.socket:
    """A packet socket on a device. Raises OSError."""
    made = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_ALL)
    )
    made.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    made.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    for option in (33, 32):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE
        made.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    made.bind((device, 0))
    return made


def untagged(frame: bytes) -> tuple[int, bytes]:
    """(the VLAN of a frame's tag, the frame without it); 0 for one that has none."""
    if frame[12:14] != _TAG or len(frame) < 18:
        return 0, frame
    return int.from_bytes(frame[14:16], "big") & 0xFFF, frame[:12] + frame[16:]


def tagged(frame: bytes, vlan: int) -> bytes:
    """A frame with the tag of a VLAN."""
    return frame[:12] + _TAG + vlan.to_bytes(2, "big") + frame[12:]


def shifted(header: bytes) -> bytes:
    """The header of a frame (virtio 1.2 section 5.1.6) that has got a tag since: what it points at
    is 4 bytes further on."""
    flags, kind, length, size, start, offset = _VNET.unpack(header)
    return _VNET.pack(
        flags, kind, length + 4 if kind else length, size, start + 4 if flags & 1 else start, offset
    )


class Pcap:
    """A file of frames (the classic libpcap format, microseconds)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _LARGEST, 1))

    def add(self, frame: bytes, at: float) -> None:
        """Writes one frame; `at` is seconds since the epoch."""
        self._file.write(
            struct.pack("=IIII", int(at), int(at % 1 * 1e6), len(frame), len(frame)) + frame
        )

    def close(self) -> None:
        """Writes what is left."""
        self._file.close()


class Switch:
    """Learns who is where, and forwards. `faults` are of ports, by their names; a port that has
    none is not disturbed."""

    def __init__(self, faults: dict[str, Faults], dice: random.Random) -> None:
        self.faults, self._dice = faults, dice
        self._where: dict[tuple[int, bytes], str] = {}
        self._late: list[tuple[float, int, str, bytes, bytes]] = []
        self._number = 0
        self.counts: Counter[str] = Counter()

    def ways(self, ports: dict[str, Port], source: str, frame: bytes) -> list[tuple[str, bytes]]:
        """Where a frame goes that came from a port: (port, the frame as that one has it)."""
        port = ports[source]
        said, plain = untagged(frame)
        if said and said not in port.tagged:
            self.counts["foreign-vlan"] += 1
            return []
        vlan = said or port.vlan
        self._where[vlan, plain[6:12]] = source
        known = None if plain[0] & 1 else self._where.get((vlan, plain[:6]))
        found = []
        for name, to in ports.items():
            if name != source and known in (None, name):
                if to.vlan == vlan:
                    found.append((name, plain))
                elif vlan in to.tagged:
                    found.append((name, tagged(plain, vlan)))
        return found

    def times(self, names: Sequence[str]) -> list[float]:
        """After how many seconds a frame that passes these ports is to come out, for each time that
        it does; none if it is lost."""
        copies = [0.0]
        for name in names:
            one = self.faults.get(name)
            if one is None:
                continue
            chance = self._dice.random
            if one.cut or chance() * 100 < one.loss:
                self.counts["lost"] += 1
                return []
            if chance() * 100 < one.duplicate:
                self.counts["doubled"] += 1
                copies.append(copies[0])
            late = one.late_ms if chance() * 100 < one.reorder else 0.0
            self.counts["late"] += late > 0
            copies = [
                wait
                + max(0.0, one.delay_ms + late + self._dice.uniform(-1, 1) * one.jitter_ms) / 1e3
                for wait in copies
            ]
        return copies

    def hold(self, due: float, port: str, header: bytes, frame: bytes) -> None:
        """Keeps a frame until it is due."""
        self._number += 1
        heapq.heappush(self._late, (due, self._number, port, header, frame))

    def due(self, now: float) -> list[tuple[str, bytes, bytes]]:
        """What is to come out now: (port, header, frame)."""
        found = []
        while self._late and self._late[0][0] <= now:
            found.append(self._late[0][2:])
            heapq.heappop(self._late)
        return found

    def wait(self, now: float) -> float | None:
        """Seconds until something is due, None if nothing is kept."""
        return max(0.0, self._late[0][0] - now) if self._late else None


def received(sock: socket.socket) -> tuple[bytes, bytes] | None:
    """(header, frame) that came in at a device, its tag in it again, which the kernel has taken
    out; None for one that went out."""
    data, extra, _, source = sock.recvmsg(_HEADER + _LARGEST, 64)
    if source[2] == _OUTGOING:
        return None
    header, frame = data[:_HEADER], data[_HEADER:]
    for _, _, value in extra:
        status, _, _, _, _, tci, _ = _AUX.unpack(value[: _AUX.size])
        if status & _VLAN_VALID:
            frame = tagged(frame, tci)
    return header, frame


class Runner:
    """The sockets around a switch. `records` is where each disturbed port's frames are written to,
    None for nowhere."""

    def __init__(
        self,
        ports: Sequence[Port],
        faults: dict[str, Faults],
        seed: int,
        records: Path | None,
        control: str,
    ) -> None:
        self._ports = {port.name: port for port in ports}
        self.switch = Switch(faults, random.Random(seed))  # noqa: S311 (faults are no secrets)
        self._sockets = {port.name: opened(port.device) for port in ports}
        self._records = (
            {name: Pcap(records / f"{name}.pcap") for name in faults} if records is not None else {}
        )
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._control.bind(control)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ, "")
        for name, sock in self._sockets.items():
            self._selector.register(sock, selectors.EVENT_READ, name)

    def run(self) -> None:
        """Forwards until it is told to end."""
        while True:
            for key, _ in self._selector.select(self.switch.wait(time.monotonic())):
                if not key.data:
                    if not self._told():
                        return
                    continue
                for _ in range(_AT_ONCE):
                    try:
                        found = received(self._sockets[key.data])
                    except (
                        BlockingIOError,
                        OSError,
                    ):  # a device that is down is read again when it is up
                        break
                    if found is not None:
                        self._frame(key.data, *found)
            for port, header, frame in self.switch.due(time.monotonic()):
                self._out(port, header, frame)

    def _frame(self, source: str, header: bytes, frame: bytes) -> None:
        self._note(source, frame)
        now, plain = time.monotonic(), len(untagged(frame)[1])
        for name, out in self.switch.ways(self._ports, source, frame):
            head = shifted(header) if len(out) > plain else header
            for wait in self.switch.times((source, name)):
                if wait:
                    self.switch.hold(now + wait, name, head, out)
                else:
                    self._out(name, head, out)

    def _out(self, port: str, header: bytes, frame: bytes) -> None:
        try:
            self._sockets[port].send(header + frame)
            self._note(port, frame)
        except OSError:  # the machine is off, or its queue is full
            self.switch.counts["undelivered"] += 1

    def _note(self, port: str, frame: bytes) -> None:
        if port in self._records:
            self._records[port].add(frame, time.time())

    def _told(self) -> bool:
        """One word of the one who runs it: {"end": true}, or other faults of ports. Each is
        answered with what was counted."""
        data, source = self._control.recvfrom(1 << 16)
        said = json.loads(data)
        for name, faults in said.get("faults", {}).items():
            self.switch.faults[name] = Faults(**faults)
        if said.get("end"):
            for record in self._records.values():
                record.close()
        if source:
            self._control.sendto(json.dumps(self.switch.counts).encode(), source)
        return not said.get("end")


def main() -> None:
    """Runs what CONFIG says; writes a line when it forwards."""
    said = json.loads(Path(sys.argv[1]).read_text())
    records = said["records"] and Path(said["records"])
    runner = Runner(
        [Port(**port) for port in said["ports"]],
        {name: Faults(**one) for name, one in said["faults"].items()},
        said["seed"],
        records or None,
        said["control"],
    )
    print("forwards", flush=True)
    runner.run()


if __name__ == "__main__":
    main()
