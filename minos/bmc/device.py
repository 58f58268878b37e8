"""The device of a BMC inside the machine: /dev/ipmi0 (KCS and others), in pure Python.

struct ipmi_req is {addr*, addr_len, msgid, {netfn, cmd, data_len, data*}}, struct ipmi_recv
{recv_type, addr*, addr_len, msgid, {netfn, cmd, data_len, data*}} (linux/ipmi.h).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
from collections.abc import Callable
from pathlib import Path

DEVICE = Path("/dev/ipmi0")
APP = 0x06
TRANSPORT = 0x0C
"""Network functions (IPMI 2.0, table 5-1)."""
TIMEOUT_S = 5.0
_SEND = 0x8028690D
_RECEIVE = 0xC030690B
_ADDRESS = struct.pack("@ihBx", 0x0C, 0x0F, 0)

Ask = Callable[[int, int, bytes], bytes]
"""(netfn, command, data) -> what is answered after the completion code. Raises Refusal for a code
that is not 0, and OSError if nothing is answered."""


class Refusal(OSError):
    """The BMC answers a command with a completion code that is not 0, `code`; -1 for an answer
    without one."""

    def __init__(self, command: int, code: int) -> None:
        super().__init__(
            f"the BMC answers command {command:#x} with code "
            f"{f'{code:02x}' if code >= 0 else 'none'}"
        )
        self.code = code


class Ipmi:
    """The device, open. Raises OSError if there is none."""

    def __init__(self, path: Path = DEVICE) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._number = 0

    def close(self) -> None:
        """Closes the device."""
        os.close(self._handle)

    def request(self, netfn: int, command: int, data: bytes = b"") -> bytes:
        """See Ask."""
        self._number += 1
        address = ctypes.create_string_buffer(_ADDRESS, len(_ADDRESS))
        buffer = ctypes.create_string_buffer(data, max(1, len(data)))
        request = struct.pack(
            "@PIlBBHxxxxP",
            ctypes.addressof(address),
            8,
            self._number,
            netfn,
            command,
            len(data),
            ctypes.addressof(buffer),
        )
        fcntl.ioctl(self._handle, _SEND, request)
        while True:
            if not select.select([self._handle], [], [], TIMEOUT_S)[0]:
                raise TimeoutError(f"the BMC does not answer command {command:#x}")
            place = ctypes.create_string_buffer(40)
            answer = ctypes.create_string_buffer(272)
            header = bytearray(
                struct.pack(
                    "@iPIlBBHxxxxP",
                    0,
                    ctypes.addressof(place),
                    40,
                    0,
                    0,
                    0,
                    272,
                    ctypes.addressof(answer),
                )
            )
            fcntl.ioctl(self._handle, _RECEIVE, header, True)
            fields = struct.unpack("@iPIlBBHxxxxP", header)
            if fields[3] != self._number:
                continue  # an answer to one that was given up
            content = answer.raw[: fields[6]]
            if not content or content[0]:
                raise Refusal(command, content[0] if content else -1)
            return content[1:]
