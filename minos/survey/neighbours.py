"""Hears which switch and port each network card is at, by LLDP: switches announce themselves every
30 s."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from layercake.base.packets.lldp import ETHERTYPE, Neighbour, parse
from minos import syscalls

_ADD_MEMBERSHIP = 1
_SOL_PACKET = 263
_MULTICAST = 0
_GROUP = bytes.fromhex("0180c200000e")
_MOST = 1514


@dataclass(frozen=True, slots=True)
class Said:
    """What a neighbour said at a card of this machine."""

    card: str
    neighbour: Neighbour

    def view(self) -> dict[str, str | int]:
        """As it is reported."""
        one = self.neighbour
        return {
            "switch": one.switch,
            "port": one.port,
            "chassis": one.chassis,
            "port_text": one.port_text,
            "vlan": one.vlan,
        }


class Listener:
    """Sockets for LLDP alone on some cards: other frames do not wake anybody."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def listen_on(self, cards: Iterable[str]) -> None:
        """Listens on these cards; on those that cannot be listened on it is tried again the next
        time."""
        wanted = set(cards)
        for name in self._sockets.keys() - wanted:
            self._sockets.pop(name).close()
        for name in wanted - self._sockets.keys():
            try:
                sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            except OSError:
                return
            try:
                index = socket.if_nametoindex(name)
                sock.setsockopt(
                    _SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("IHH8s", index, _MULTICAST, 6, _GROUP)
                )
                sock.bind((name, ETHERTYPE))
                self._sockets[name] = sock
            except OSError:
                sock.close()

    def hear(self, seconds: float) -> list[Said]:
        """What is heard in so many seconds at most; returns with the first frames."""
        by_number = {one.fileno(): (name, one) for name, one in self._sockets.items()}
        received = []
        for number in select.select(list(by_number), [], [], seconds)[0]:
            name, one = by_number[number]
            try:
                frame, source = one.recvfrom(_MOST)
            except OSError:
                one.close()
                del self._sockets[name]  # the card has gone
                continue
            if source[2] != socket.PACKET_OUTGOING and (neighbour := parse(frame)) is not None:
                received.append(Said(name, neighbour))
        return received

    def close(self) -> None:
        """Listens no more."""
        while self._sockets:
            self._sockets.popitem()[1].close()


def load(modules: Path = Path("/usr/lib/minos/modules")) -> None:
    """Loads what listening needs, of the modules that are in minOS itself. Where there are none,
    the kernel has it, or nothing is heard. Raises OSError."""
    chosen = modules / "survey"
    for name in chosen.read_text().split() if chosen.exists() else ():
        syscalls.load_module(f"{modules}/{name}.ko")


def names(root: Path = Path("/sys/class/net")) -> list[str]:
    """The network cards that are devices."""
    return sorted(path.name for path in root.iterdir() if (path / "device").exists())


def wait_for_neighbours(
    listener: Listener, cards: Callable[[], Iterable[str]], clock: Callable[[], float], until: float
) -> list[Said]:
    """What is new until a time on the clock, or until something was heard."""
    while clock() < until:
        listener.listen_on(cards())
        if received := listener.hear(max(0.0, min(2.0, until - clock()))):
            return received
    return []
