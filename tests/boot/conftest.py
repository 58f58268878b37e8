"""Shared by the boot tests: a node, settings, a clock that is moved by hand, and a network of two
namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.service import FakeLink, MutationRequest
from pxe.nodes import Node, Nodes, from_record
from pxe.notes import Recorder
from pxe.service import PxeService
from pxe.settings import BootSettings, Settings
from pxe.state import BootState
from pxe.windows import Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings, site

NODE = "6b1f2a3c-0000-4000-8000-000000000001"
MAC = "52:54:00:00:01:01"
TOKEN = "one-use_token.42"
RECORD = {
    "name": "n1",
    "macs": [MAC],
    "ip": "10.99.0.11",
    "arch": "x86_64",
    "firmware": "bios",
    "kernel_args": "quiet",
    "console": "ttyS0",
}
FACTS: dict[str, Any] = {"gateway": "10.99.0.254", "dns": ["10.99.0.1", "10.99.0.2"]}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def settings() -> Settings:
    return boot_settings(**FACTS)


@pytest.fixture
def node() -> Node:
    return from_record(NODE, RECORD)


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def state(settings: Settings, node: Node, link: FakeLink, clock: FakeClock) -> BootState:
    """A table with one node that is not armed."""
    nodes, windows = Nodes(), Windows()
    nodes.update(node)
    return BootState(settings, nodes, windows, Recorder(link, windows, clock), clock)


def request(
    mutation: str, number: int = 1, *, timeout: float = 10.0, token: str = TOKEN
) -> MutationRequest:
    """An attempt as the head asks for it."""
    return MutationRequest(number, NODE, mutation, 1, timeout, {"token": token, "window_s": 100.0})


@pytest.fixture
def make_request() -> Callable[..., MutationRequest]:
    return request


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Directories with boot files; the UEFI program is a multiple of the blocks 512 and 1468 long:
    its last block is empty."""
    boot, ipxe = tmp_path / "boot", tmp_path / "ipxe"
    boot.mkdir()
    ipxe.mkdir()
    (boot / "vmlinuz").write_bytes(os.urandom(300_000))
    (boot / "minos.img").write_bytes(os.urandom(1_000_001))
    (ipxe / "undionly.kpxe").write_bytes(os.urandom(70_001))
    (ipxe / "snponly.efi").write_bytes(os.urandom(512 * 1468 // 4))
    return {"data_dir": str(tmp_path), "boot_dir": str(boot), "ipxe_dir": str(ipxe)}


def enter(name: str) -> None:
    """Moves the calling thread into a network namespace."""
    with Path(f"/run/netns/{name}").open() as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"setns {name}")


class Wire:
    """Two network namespaces joined by a cable: the head's end has the service's address, the
    node's end the node's MAC."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.head = f"bh{tag}"
        self.client = f"bc{tag}"
        self.head_if = f"vh{tag}"
        self.client_if = f"vc{tag}"

    def up(self) -> None:
        for name in (self.head, self.client):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        peer = ("peer", "name", self.client_if, "netns", self.client)
        self.ip("link", "add", self.head_if, "netns", self.head, "type", "veth", *peer)
        self.ip("-n", self.head, "addr", "add", "10.99.0.1/24", "dev", self.head_if)
        self.ip("-n", self.client, "link", "set", self.client_if, "address", MAC)
        for name, interface in ((self.head, self.head_if), (self.client, self.client_if)):
            self.ip("-n", name, "link", "set", interface, "up")

    def down(self) -> None:
        for name in (self.head, self.client):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def give_address(self) -> None:
        """Gives the node's end the address that is reserved for it, as a boot would."""
        self.ip("-n", self.client, "addr", "replace", "10.99.0.11/24", "dev", self.client_if)

    def run(self, *words: str, timeout: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        """Runs a program at the node's end."""
        return subprocess.run(
            ["ip", "netns", "exec", self.client, *words],
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def there(self, work: Callable[[], Any], name: str = "") -> Any:
        """Calls a function in a thread that lives at the node's end (sockets that it opens stay
        there)."""
        result: list[Any] = []

        def body() -> None:
            enter(name or self.client)
            result.append(work())

        thread = threading.Thread(target=body)
        thread.start()
        thread.join(60)
        assert result, "the work in the namespace did not end well"
        return result[0]


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    try:
        made.up()
        yield made
    finally:
        made.down()


class Running:
    """The service on the head's end of a wire, in a thread of its own; `errors` are those that
    nothing caught."""

    def __init__(
        self,
        wire: Wire,
        files: dict[str, Any],
        boot: dict[str, Any] | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.link = FakeLink()
        self.errors: list[dict[str, Any]] = []
        self._site = site(
            **{**FACTS, "interface": wire.head_if, "data_dir": files["data_dir"], **(facts or {})}
        )
        self._boot = BootSettings(ipxe_dir=files["ipxe_dir"], **(boot or {}))
        self._wire = wire
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._failure: LayercakeError | None = None
        self._thread = threading.Thread(target=self._body)

    def _body(self) -> None:
        enter(self._wire.head)
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.service = PxeService()
        try:
            self._loop.run_until_complete(self.service.start(self.link, self._site, self._boot))
            if self._told:
                self._loop.run_until_complete(self.service.ready())
        except LayercakeError as error:
            self._failure = error
            self._ready.set()
            self._loop.close()
            return
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self.service.stop())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def start(self, *, told: bool = True) -> None:
        """Returns when it serves; it may have been `told` that it knows all nodes."""
        self._told = told
        self._thread.start()
        assert self._ready.wait(20)
        if self._failure is not None:
            self._thread.join(10)
            raise self._failure

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine of the service in its loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def arm(self) -> None:
        assert self.do(self.service.mutate(request("boot-arm"))) == {"boot": "WAIT"}

    def stats(self) -> dict[str, int]:
        found: dict[str, int] = self.do(self.service.call("boot.stats", {}))
        return found

    def kinds(self) -> list[str]:
        return [event[1] for event in self.link.events]


@pytest.fixture
def running(wire: Wire, files: dict[str, Any]) -> Iterator[Running]:
    """The service with one known node that is not armed."""
    made = Running(wire, files, {"ra_prefix": "fd99::/64"})
    made.start()
    try:
        made.do(made.service.node_changed(NODE, RECORD))
        yield made
    finally:
        made.stop()
    assert made.errors == []


class PacketSocket:
    """Raw Ethernet at the node's end."""

    def __init__(self, wire: Wire) -> None:
        def opened() -> socket.socket:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            sock.bind((wire.client_if, 0))
            sock.settimeout(3.0)
            return sock

        self.sock: socket.socket = wire.there(opened)

    def exchange(self, frame: bytes, wanted: Callable[[bytes], bool]) -> bytes | None:
        """Sends a frame; the first frame back that is wanted, or None after 3 s of silence."""
        self.sock.setblocking(False)
        with contextlib.suppress(
            BlockingIOError
        ):  # what came before; a full buffer would drop the answer
            while self.sock.recv(4096):
                pass
        self.sock.settimeout(3.0)
        self.sock.send(frame)
        end = time.monotonic() + 3.0
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < end:
                data, address = self.sock.recvfrom(4096)
                if address[2] != socket.PACKET_OUTGOING and wanted(data):
                    return data
        return None


@pytest.fixture
def packets(wire: Wire) -> Iterator[PacketSocket]:
    made = PacketSocket(wire)
    yield made
    made.sock.close()


@pytest.fixture
def make_running() -> type[Running]:
    return Running
