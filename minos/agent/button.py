"""The power button: that of the machine's case, or pressed by its BMC, as IPMI's soft shutdown
(specification 2.0, 28.3) and Redfish's GracefulShutdown do.

The kernel's driver `button` tells of it by generic netlink, family acpi_event (Linux,
drivers/acpi/event.c). There is no logind in minOS that would listen.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

from layercake.base.packets.netlink import NLMSG_ERROR, attribute, attributes, messages
from layercake.kraken.errors import OperationFailed
from minos.agent.core import Pressed
from minos.netlink import message

_GENERIC = 16
_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_CONTROL = 16
_GET_FAMILY = 3
_FAMILY_NAME = 2
_GROUPS = 7
_GROUP_NAME = 1
_GROUP_ID = 2
_FAMILY = b"acpi_event\0"
_GROUP = b"acpi_mc_group\0"
_EVENT = 1
_CLASS = b"button/power"
_PRESSED = 0x80
_SAID = struct.Struct("=20s15sxII")
"""Class of the device, its name, what it tells, how often it did (struct acpi_genl_event)."""
_HEAD = 4
"""Bytes of a generic netlink message before its attributes."""


class Button:
    """Listens on a thread of its own. `post` takes messages to the loop, `say` is told why nobody
    listens."""

    def __init__(self, post: Callable[[object], None], say: Callable[[str], None]) -> None:
        self._post = post
        self._say = say

    def start(self) -> None:
        """Listens from now on."""
        threading.Thread(target=self._run, name="button", daemon=True).start()

    def _run(self) -> None:
        try:
            listener = listen()
        except (OSError, OperationFailed) as error:
            self._say(f"agent: nobody listens to the power button: {error}")
            return
        with listener:
            while True:
                try:
                    data = listener.recv(1 << 16)
                except (
                    OSError
                ):  # more events than it has room for: the button is pressed again by who means it
                    continue
                if pressed(data):
                    self._post(Pressed())


def pressed(said: bytes) -> bool:
    """Whether what the kernel said is that the power button was pressed."""
    for _, _, body in messages(said):
        event = attributes(body[_HEAD:]).get(_EVENT, b"")
        if len(event) >= _SAID.size:
            kind, _, what, _ = _SAID.unpack_from(event)
            if kind.rstrip(b"\0") == _CLASS and what == _PRESSED:
                return True
    return False


def listen() -> socket.socket:
    """A socket that gets the kernel's ACPI events. Raises OSError, and OperationFailed where the
    machine has no ACPI."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _GENERIC)
    try:
        sock.bind((0, 0))
        sock.settimeout(5)
        sock.send(
            message(
                _CONTROL,
                0,
                1,
                struct.pack("=BBH", _GET_FAMILY, 1, 0) + attribute(_FAMILY_NAME, _FAMILY),
            )
        )
        sock.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group_of(sock.recv(1 << 16)))
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def group_of(answer: bytes) -> int:
    """The number of the group of ACPI events in the kernel's answer. Raises OperationFailed."""
    for kind, _, body in messages(answer):
        groups = (
            {} if kind == NLMSG_ERROR else attributes(attributes(body[_HEAD:]).get(_GROUPS, b""))
        )
        for group in map(attributes, groups.values()):
            if group.get(_GROUP_NAME) == _GROUP and len(group.get(_GROUP_ID, b"")) == 4:
                return int(struct.unpack("=I", group[_GROUP_ID])[0])
    raise OperationFailed("the kernel tells of no ACPI events")
