"""Hears which switch and port each network card is at, by LLDP: switches announce themselves every
30 s."""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
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
_NETLINK_KOBJECT_UEVENT = 15
_BURST = 4096
GATHER_S = 0.5
LOOK_S = 2.0
"""Seconds between two looks for cards where the kernel does not tell."""


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
    """Sockets for LLDP alone on some cards: other frames do not wake anybody. And one by which the
    kernel tells that devices come and go; where it does not, `hears_devices` is false, and they are
    to be looked for."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._devices = _kernel_events()

    @property
    def hears_devices(self) -> bool:
        """Whether `hear` returns when a device has come or gone."""
        return self._devices is not None

    def listen_on(self, cards: Iterable[str]) -> None:
        """Listens on these cards, whether they are up or not; on those that cannot be listened on
        it is tried again the next time."""
        wanted = set(cards)
        for name, one in list(self._sockets.items()):
            if name not in wanted or one.getsockname()[0] != name:  # another one has its name now
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
        """What is heard in so many seconds at most; returns with the first frames, and when a
        device has come or gone."""
        by_number = {one.fileno(): (name, one) for name, one in self._sockets.items()}
        received = []
        devices = -1 if self._devices is None else self._devices.fileno()
        waited = [*by_number, devices] if devices >= 0 else list(by_number)
        for number in select.select(waited, [], [], seconds)[0]:
            if self._devices is not None and number == devices:
                _drain(self._devices)
                continue
            name, one = by_number[number]
            try:
                frame, source = one.recvfrom(_MOST)
            except OSError:
                continue  # told once that the card is down, or gone: it may come up again
            if source[2] != socket.PACKET_OUTGOING and (neighbour := parse(frame)) is not None:
                received.append(Said(name, neighbour))
        return received

    def close(self) -> None:
        """Listens no more."""
        while self._sockets:
            self._sockets.popitem()[1].close()
        if self._devices is not None:
            self._devices.close()


def _kernel_events() -> socket.socket | None:
    try:
        made = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _NETLINK_KOBJECT_UEVENT
        )
    except OSError:
        return None
    try:
        made.bind((0, 1))
    except OSError:
        made.close()
        return None
    return made


def _drain(devices: socket.socket) -> None:
    """Reads all that has come: which device it was is looked for. More than could be kept
    (ENOBUFS) is some, too."""
    time.sleep(GATHER_S)  # they come in bursts, by the dozen when a container starts
    for _ in range(_BURST):
        try:
            devices.recv(_MOST)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise


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
    """What is new until a time on the clock, or until something was heard: nothing, when a device
    has come or gone."""
    while (left := until - clock()) > 0:
        listener.listen_on(cards())
        received = listener.hear(left if listener.hears_devices else min(LOOK_S, left))
        if received or listener.hears_devices:
            return received
    return []
