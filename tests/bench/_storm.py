"""Machines that are switched on at once, from one process: `python -m tests.bench._storm JSON`, at
the machines' end.

Each is a BIOS by its own relay: DHCP as firmware, the boot program by TFTP, DHCP once more as iPXE,
and by HTTP script, kernel and initramfs. Nothing is skipped and each step waits for the one before.
The last line says how many came to the end, and when.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from layercake.base.tcp_listener import raise_file_limit
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from tests.bench._fetch import Ask, Got, Http, Tftp
from tests.bench._lab import ADDRESS, ip, mac

_FIRMWARE = {
    60: b"PXEClient:Arch:00000:UNDI:002001",
    93: b"\0\0",
    97: bytes(17),
    55: b"\1\3\6\x0c\x42\x43",
}
_IPXE = {**_FIRMWARE, 77: b"iPXE", 175: b"\xb1\1\1"}
_AGAIN_S, _LIMIT_S, _LOOK_S = 2.0, 300.0, 0.1


class Dhcp:
    """DHCPDISCOVER to DHCPACK of one node (RFC 2131 section 3.1), by a relay that is at the node's
    own address."""

    def __init__(self, number: int, options: dict[int, bytes]) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._address = socket.inet_aton(ip(number))
        self.sock.bind((ip(number), 67))
        self._chaddr, self._xid = (
            bytes.fromhex(mac(number).replace(":", "")) + bytes(10),
            number + 1,
        )
        self._options, self.again = options, 0
        self._say(MessageType.DISCOVER, {})

    def _say(self, kind: MessageType, more: dict[int, bytes]) -> None:
        self._packet = dhcp.build(
            DhcpPacket(
                dhcp.REQUEST,
                self._xid,
                self._chaddr,
                {53: bytes((kind,)), **self._options, **more},
                hops=1,
                giaddr=self._address,
            )
        )
        self._send()

    def _send(self) -> None:
        self.due = time.monotonic() + _AGAIN_S
        self.sock.sendto(self._packet, (ADDRESS, 67))

    def ready(self) -> None:
        """Takes what has come. Raises Got."""
        found = dhcp.parse(self.sock.recv(2048))
        if found.xid != self._xid or found.yiaddr != self._address:
            raise Got(0, "not the address of the node")
        if found.message_type == MessageType.OFFER:
            self._say(MessageType.REQUEST, {50: found.yiaddr, 54: found.options[54]})
        elif found.message_type == MessageType.ACK:
            raise Got(0)

    def silent(self) -> None:
        """Asks again."""
        self.again += 1
        self._send()


Step = Dhcp | Tftp | Http


def boot(number: int) -> Iterator[Step]:
    """The steps of one machine."""
    address, name = ip(number), mac(number).replace(":", "-")
    yield Dhcp(number, _FIRMWARE)
    yield Tftp(Ask(address, "undionly.kpxe", 69))
    yield Dhcp(number, _IPXE)
    for file in (name, "vmlinuz", "minos.img"):
        yield Http(Ask(address, f"/boot/{file}", 8080))


class Storm:
    """All machines."""

    def __init__(self, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._live: dict[Step, Iterator[Step]] = {}
        self.done, self.size, self.again = 0, 0, 0
        self.failed: dict[str, int] = {}
        for number in range(count):
            self._next(boot(number))

    def _next(self, machine: Iterator[Step]) -> None:
        step = next(machine, None)
        if step is None:
            self.done += 1
            return
        self._live[step] = machine
        self._selector.register(step.sock, selectors.EVENT_READ, step)

    def _ended(self, step: Step, got: Got) -> None:
        machine = self._live.pop(step)
        self._selector.unregister(step.sock)
        step.sock.close()
        self.size += got.size
        self.again += getattr(step, "again", 0)
        if got.why:
            self.failed[got.why] = self.failed.get(got.why, 0) + 1
        else:
            self._next(machine)

    def _try(self, step: Step, *, silent: bool) -> None:
        try:
            step.silent() if silent else step.ready()
        except BlockingIOError:
            pass
        except (Got, OSError) as error:
            self._ended(step, error if isinstance(error, Got) else Got(0, str(error)))

    def run(self) -> None:
        """Until all are at their end."""
        started = looked = time.monotonic()
        while self._live and time.monotonic() - started < _LIMIT_S:
            for key, _ in self._selector.select(_LOOK_S):
                self._try(key.data, silent=False)
            if (now := time.monotonic()) - looked > _LOOK_S:
                looked = now
                for step in [step for step in self._live if now > step.due]:
                    self._try(step, silent=True)


def main(words: dict[str, Any]) -> None:
    """Prints what came of it."""
    raise_file_limit()
    started = time.monotonic()
    storm = Storm(words["count"])
    storm.run()
    print(
        json.dumps(
            {
                "done": storm.done,
                "bytes": storm.size,
                "seconds": time.monotonic() - started,
                "again": storm.again,
                "failed": storm.failed,
            }
        )
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
