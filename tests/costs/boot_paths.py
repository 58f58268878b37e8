"""The hot paths of the boot service, over real sockets: a DHCP exchange of a node that runs and of
one that boots, a TFTP block, the request of a boot script and that of a boot file.

The service is in the head's namespace of a Lab, the machines are sockets at its other end, which a
thread of the test uses.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pxe.dhcp.answers import Answers
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.state import BootState
from pxe.tftp_transfer import Transfer
from tests.bench._lab import ADDRESS, RELAY, Lab, ip, mac
from tests.bench._pxe import Bench, Told
from tests.costs.counting import Meter
from tests.costs.paths import PLANTED, HotPath, Traffic

NODES = 60
BOOTING = 40
EXCHANGES = 20
REQUESTS = 20
BLOCKS = 64
MB = 2
BLOCK, TFTP_CLIENT = 1468, 2000
PROGRAM = "undionly.kpxe"
WAIT_S = 30.0
_CLONE_NEWNET = 0x40000000
_EPOLL_WAIT = str({"x86_64": 232, "aarch64": 22}[platform.machine()])


class Machines:
    """The machines' end of the Lab: one thread, in its namespace. The main thread is the
    service's."""

    def __init__(self, namespace: str) -> None:
        self._service = Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
        self._pool = ThreadPoolExecutor(1, initializer=self._enter, initargs=(namespace,))
        self.thread = self._pool.submit(threading.get_native_id).result()

    @staticmethod
    def _enter(namespace: str) -> None:
        sys.setprofile(None)  # what the machines do is not counted
        handle = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(handle)

    def idle(self) -> None:
        """Waits until the service waits for what comes next. How much of its work it does at a
        stretch depends on the load otherwise."""
        end = time.monotonic() + WAIT_S
        while True:
            call = self._service.read_text().split()
            if call[0] == _EPOLL_WAIT and call[4] not in ("0x0", "0x00000000"):
                return
            if time.monotonic() > end:
                raise SystemExit(f"the service is not idle: {call}")
            time.sleep(0)

    async def do(self, meter: Meter, work: Callable[[], Traffic]) -> Traffic:
        """Does some work there while it is counted what that costs the service."""
        loop = asyncio.get_running_loop()
        with meter:
            return await loop.run_in_executor(self._pool, work)

    def close(self) -> None:
        """Ends the thread."""
        self._pool.shutdown()


def _udp(address: str, port: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(WAIT_S)
    made.bind((address, port))
    return made


def _asking(number: int, kind: MessageType, options: dict[int, bytes]) -> bytes:
    """A packet of a running system behind a relay."""
    hardware = bytes.fromhex(mac(number).replace(":", ""))
    return dhcp.build(
        DhcpPacket(
            dhcp.REQUEST,
            number,
            hardware.ljust(16, b"\0"),
            {dhcp.MESSAGE_TYPE: bytes((kind,)), **options},
            hops=1,
            giaddr=socket.inet_aton(RELAY),
        )
    )


def exchanges(machines: Machines, first: int) -> Traffic:
    """DISCOVER, OFFER, REQUEST, ACK, of one machine after the other from this one on."""
    seen = Traffic()
    with _udp(RELAY, 67) as relay:

        def answered(packet: bytes) -> DhcpPacket:
            machines.idle()
            relay.sendto(seen.add(packet), (ADDRESS, 67))
            return dhcp.parse(_received(relay, seen)[0])

        for number in range(first, first + EXCHANGES):
            offer = answered(_asking(number, MessageType.DISCOVER, {}))
            options = {
                dhcp.REQUESTED_IP: offer.yiaddr,
                dhcp.SERVER_ID: offer.options[dhcp.SERVER_ID],
            }
            acked = answered(_asking(number, MessageType.REQUEST, options))
            if acked.message_type != MessageType.ACK:
                raise SystemExit(f"the DHCP server does not acknowledge: {acked}")
        seen.rest(relay)
    return seen


def _received(waiting: socket.socket, seen: Traffic) -> tuple[bytes, tuple[str, int]]:
    """The next datagram of the service, and from where it came."""
    while True:
        data, peer = waiting.recvfrom(4096)
        if seen.add(data) != PLANTED:
            return data, peer


def blocks(machines: Machines) -> Traffic:
    """The first blocks of a boot program, each acknowledged; then the machine breaks off."""
    seen = Traffic()
    with _udp(ip(0), TFTP_CLIENT) as machine:
        words = (PROGRAM, "octet", "blksize", str(BLOCK))
        packet = b"\0\1" + b"".join(word.encode() + b"\0" for word in words)
        peer = (ADDRESS, 69)
        for number in range(BLOCKS):
            machines.idle()
            machine.sendto(seen.add(packet), peer)
            _, peer = _received(machine, seen)
            packet = b"\0\4" + number.to_bytes(2, "big")
        machines.idle()
        machine.sendto(b"\0\5\0\0enough\0", peer)
        machines.idle()
        seen.rest(machine)
    return seen


def requests(machines: Machines, path: str, count: int) -> Traffic:
    """So many requests, each by a connection of its own; {mac} in the path is the machine's."""
    seen = Traffic()
    for number in range(EXCHANGES, EXCHANGES + count):
        with socket.socket() as machine:
            machine.settimeout(WAIT_S)
            machine.bind((ip(number), 0))
            machines.idle()
            machine.connect((ADDRESS, 8080))
            machines.idle()
            asked = path.replace("{mac}", mac(number).replace(":", "-"))
            machine.sendall(
                f"GET {asked} HTTP/1.1\r\nHost: {ADDRESS}:8080\r\nUser-Agent: iPXE/1.0\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            head = machine.recv(65536)
            if b" 200 " not in head[:16]:
                raise SystemExit(f"cannot fetch {asked}: {head!r}")
            seen.size += len(head)
            while data := machine.recv(1 << 20):
                seen.size += len(data)
        machines.idle()
    return seen


async def boot_paths(lab: Lab, machines: Machines) -> list[HotPath]:
    """The paths, of a service that has started in this process. Its namespace is the head's."""
    lab.addresses(NODES)
    lab.boot_files(MB)
    bench = Bench(Told(str(lab.folder), NODES))
    await bench.start()
    arm = {"do": "arm", "nodes": BOOTING, "asked": True}

    async def dhcp_round(meter: Meter) -> Traffic:
        return await machines.do(meter, lambda: exchanges(machines, BOOTING))

    async def dhcp_boot_round(meter: Meter) -> Traffic:
        await bench.answer(arm)
        return await machines.do(meter, lambda: exchanges(machines, 0))

    async def tftp_round(meter: Meter) -> Traffic:
        await bench.answer(arm)
        return await machines.do(meter, lambda: blocks(machines))

    async def script_round(meter: Meter) -> Traffic:
        await bench.answer(arm)  # a boot gets one script
        return await machines.do(meter, lambda: requests(machines, "/boot/{mac}", REQUESTS))

    async def file_round(meter: Meter) -> Traffic:
        return await machines.do(meter, lambda: requests(machines, "/boot/vmlinuz", REQUESTS))

    received, answer = (Answers, "to"), (Transfer, "answer")
    booting, began = (BootState, "booting"), (BootState, "began")
    own, client = (machines.thread,), (ip(0), TFTP_CLIENT)
    return [
        HotPath("dhcp", "exchange", EXCHANGES, dhcp_round, received, own, (RELAY, 67)),
        HotPath("dhcp_boot", "exchange", EXCHANGES, dhcp_boot_round, received, own, (RELAY, 67)),
        HotPath("tftp", "block", BLOCKS, tftp_round, answer, own, client),
        HotPath("script", "request", REQUESTS, script_round, booting, own),
        HotPath("file", "request", REQUESTS, file_round, began, own),
    ]
