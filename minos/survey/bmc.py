"""The BMC as it is seen from inside the machine: /dev/ipmi0 (KCS and others), in pure Python.

struct ipmi_req is {addr*, addr_len, msgid, {netfn, cmd, data_len, data*}}, struct ipmi_recv {recv_type, addr*, addr_len, msgid,
{netfn, cmd, data_len, data*}} (linux/ipmi.h).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICE = Path("/dev/ipmi0")
_SEND, _RECEIVE = 0x8028690D, 0xC030690B
_ADDRESS = struct.pack("@ihBx", 0x0C, 0x0F, 0)
_APP, _TRANSPORT = 0x06, 0x0C
_GET_DEVICE_ID, _GET_LAN, _GET_CHANNEL = 0x01, 0x02, 0x42
_IP, _SOURCE, _MAC, _MASK, _GATEWAY, _VLAN = 3, 4, 5, 6, 12, 20
_LAN_MEDIUM, _CHANNELS = (4, 6), range(1, 12)
_SOURCES = {1: "static", 2: "dhcp", 3: "bios", 4: "other"}

Ask = Callable[[int, int, bytes], bytes]
"""(netfn, command, data) -> what is answered after the completion code. Raises OSError for a code that is not 0."""


class Ipmi:
    """The device, open. Raises OSError if there is none."""

    def __init__(self, path: Path = DEVICE, timeout: float = 5.0) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._timeout, self._number = timeout, 0

    def close(self) -> None:
        """Closes the device."""
        os.close(self._handle)

    def ask(self, netfn: int, command: int, data: bytes = b"") -> bytes:
        """See Ask."""
        self._number += 1
        address, said = ctypes.create_string_buffer(_ADDRESS, len(_ADDRESS)), ctypes.create_string_buffer(data, max(1, len(data)))
        request = struct.pack("@PIlBBHxxxxP", ctypes.addressof(address), 8, self._number, netfn, command, len(data),
                              ctypes.addressof(said))
        fcntl.ioctl(self._handle, _SEND, request)
        while True:
            if not select.select([self._handle], [], [], self._timeout)[0]:
                raise TimeoutError(f"the BMC does not answer command {command:#x}")
            place, answer = ctypes.create_string_buffer(40), ctypes.create_string_buffer(272)
            header = bytearray(struct.pack("@iPIlBBHxxxxP", 0, ctypes.addressof(place), 40, 0, 0, 0, 272, ctypes.addressof(answer)))
            fcntl.ioctl(self._handle, _RECEIVE, header, True)
            fields = struct.unpack("@iPIlBBHxxxxP", header)
            if fields[3] != self._number:
                continue  # an answer to one that was given up
            found = answer.raw[:fields[6]]
            if not found or found[0]:
                raise OSError(f"the BMC answers command {command:#x} with code {found[:1].hex() or 'none'}")
            return found[1:]


def survey(ask: Ask) -> dict[str, Any]:
    """Address, MAC address and firmware of a BMC. Raises OSError for one that does not answer at all."""
    device = ask(_APP, _GET_DEVICE_ID, b"")
    if len(device) < 11:
        raise OSError("the BMC's device id is too short")
    found: dict[str, Any] = {
        "firmware": f"{device[2] & 0x7F}.{device[3]:02x}", "ipmi": f"{device[4] & 15}.{device[4] >> 4}",
        "vendor": int.from_bytes(device[6:9], "little") & 0xFFFFF, "product": int.from_bytes(device[9:11], "little"),
        "channel": 0, "address": "", "mask": "", "gateway": "", "mac": "", "source": "", "vlan": 0}
    for channel in _CHANNELS:
        try:
            if ask(_APP, _GET_CHANNEL, bytes((channel,)))[1] & 0x7F not in _LAN_MEDIUM:
                continue
            found |= _lan(ask, channel)
        except (OSError, IndexError):
            continue
        break
    return found


def _lan(ask: Ask, channel: int) -> dict[str, Any]:
    """How a channel is configured. A parameter that the BMC does not have is left out; the first one must be there."""
    def parameter(number: int, size: int) -> bytes:
        data = ask(_TRANSPORT, _GET_LAN, bytes((channel, number, 0, 0)))[1:]
        if len(data) < size:
            raise OSError(f"parameter {number} is too short")
        return data[:size]

    def maybe(number: int, size: int) -> bytes:
        try:
            return parameter(number, size)
        except OSError:
            return b""

    vlan = maybe(_VLAN, 2)
    return {"channel": channel, "address": _dotted(parameter(_IP, 4)), "mask": _dotted(maybe(_MASK, 4)),
            "gateway": _dotted(maybe(_GATEWAY, 4)), "mac": maybe(_MAC, 6).hex(":"),
            "source": _SOURCES.get(maybe(_SOURCE, 1)[:1].ljust(1, b"\0")[0] & 15, ""),
            "vlan": (vlan[0] | (vlan[1] & 15) << 8) if vlan and vlan[1] & 0x80 else 0}


def _dotted(data: bytes) -> str:
    return ".".join(map(str, data)) if any(data) else ""
