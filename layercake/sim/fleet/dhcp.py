"""DHCP of a simulated fleet: what firmware and iPXE ask, told to the head by a relay, as from
behind a router (RFC 2131, 3046)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import socket
from collections.abc import Callable, Sequence

from layercake.kraken.errors import OperationFailed, WireError
from layercake.sim.fleet.faults import Faults
from layercake.sim.fleet.machine import Machine
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType

_WAITS_S = (1.0, 2.0, 4.0, 8.0)
_ASKS = bytes((dhcp.SUBNET_MASK, dhcp.ROUTER, dhcp.DNS, dhcp.BOOT_FILE, dhcp.TFTP_SERVER))


class Relay:
    """Asks for all machines. The heads' DHCP servers are at `servers`, all at one port, and each is
    asked; answers come to `address`, one of this machine's, at the same port.

    The relay is in the head's own network, so that it speaks for nodes of that; those of others are
    asked for by the address of their own link (RFC 3527), which is the node's own here.
    """

    def __init__(
        self, servers: Sequence[str], port: int, faults: Faults, cut: Callable[[Machine], bool]
    ) -> None:
        self._servers = servers
        self._port = port
        self._faults = faults
        self._cut = cut
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[DhcpPacket]] = {}
        self.address = str(ipaddress.IPv4Address(servers[0]) + 1)
        self._socket: socket.socket | None = None
        self.answered = 0

    def open(self) -> None:
        """Begins. Raises OSError."""
        self._socket = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self.address, self._port))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        """Ends."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    async def boot(self, machine: Machine) -> str:
        """The URL of the boot script: firmware is given an address and a boot program, and iPXE,
        which that is, the script. Raises OperationFailed if nobody answers, or if it is not told
        one."""
        for client in (_FIRMWARE, _IPXE):
            offer = await self._exchange(machine, MessageType.DISCOVER, client, {})
            chosen = {
                dhcp.REQUESTED_IP: offer.yiaddr,
                dhcp.SERVER_ID: offer.options.get(dhcp.SERVER_ID, bytes(4)),
            }
            lease = await self._exchange(machine, MessageType.REQUEST, client, chosen)
            if socket.inet_ntoa(lease.yiaddr) != machine.identity.ip:
                raise OperationFailed(
                    f"cannot boot {machine.identity.name}: DHCP gives "
                    f"{socket.inet_ntoa(lease.yiaddr)}"
                )
        url = (lease.file or lease.options.get(dhcp.BOOT_FILE, b"")).decode(errors="replace")
        if not url.startswith("http://"):
            raise OperationFailed(
                f"cannot boot {machine.identity.name}: DHCP names {url[:80]!r}, and no script"
            )
        return url

    async def _exchange(
        self, machine: Machine, kind: MessageType, client: dict[int, bytes], more: dict[int, bytes]
    ) -> DhcpPacket:
        number = next(self._numbers) & 0xFFFFFFFF
        arch = 0 if machine.identity.firmware == "bios" else 7
        identity = machine.identity
        options = {
            dhcp.MESSAGE_TYPE: bytes((kind,)),
            55: _ASKS,
            dhcp.CLIENT_ARCH: arch.to_bytes(2, "big"),
            **client,
            **more,
            dhcp.VENDOR_CLASS: b"PXEClient:Arch:%05d:UNDI:002001" % arch,
            dhcp.RELAY_AGENT: b"\x05\x04" + socket.inet_aton(identity.ip),
        }
        packet = dhcp.build(
            DhcpPacket(
                dhcp.REQUEST,
                number,
                bytes.fromhex(identity.mac.replace(":", "")).ljust(16, b"\0"),
                options,
                hops=1,
                giaddr=socket.inet_aton(self.address),
            )
        )
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            for wait in _WAITS_S:
                machine.sent += 1
                if (
                    not self._cut(machine)
                    and self._faults.fate(identity.name, "dhcp", machine.sent)
                    and self._socket is not None
                ):
                    for server in self._servers:
                        with contextlib.suppress(BlockingIOError):
                            self._socket.sendto(packet, (server, self._port))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        return await asyncio.shield(answer)
        finally:
            del self._waiting[number]
        raise OperationFailed(f"cannot boot {identity.name}: no DHCP answer")

    def _readable(self) -> None:
        while self._socket is not None:
            try:
                packet = dhcp.parse(self._socket.recv(4096))
            except (BlockingIOError, ConnectionError):
                return
            except WireError:
                continue
            waiting = self._waiting.get(packet.xid)
            if packet.op == dhcp.REPLY and waiting is not None and not waiting.done():
                self.answered += 1
                waiting.set_result(packet)


_FIRMWARE: dict[int, bytes] = {}
_IPXE = {dhcp.USER_CLASS: b"iPXE", dhcp.IPXE: b"\x13\x01\x01\x10\x01\x02"}
