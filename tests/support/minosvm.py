"""A virtual machine that boots minOS for a head that a test plays, by QEMU's user network: the head
is 10.0.2.2 for it."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import patience
from vrack.qemu import EMULATED

from imageapi.server import ImageServer
from imageapi.store.store import ImageStore
from imageapi.store.tickets import Tickets
from layercake.agents.pki import name_of
from layercake.kraken.wire import TO_NODE, bearer
from minos.build import append_files
from minos.build.result import MODULES
from tests.support.fake_head import FakeHead
from tests.support.nodeclient import NodeClient
from tests.support.servers import connected

CACHE = Path.home() / ".cache/layercake"
MAC = "52:54:00:00:01:00"


@dataclass(frozen=True, slots=True)
class Built:
    """A minOS that was built."""

    directory: Path

    @property
    def vmlinuz(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def image(self) -> Path:
        return self.directory / "minos.img"

    @property
    def modules(self) -> Path:
        return self.directory / MODULES

    @property
    def release(self) -> str:
        return str(json.loads((self.directory / "minos.json").read_text())["kernel_release"])


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Machine:
    """One virtual machine, booted straight from kernel and initramfs; its console is a file. `rtc`
    is the time that its battery has kept. It has as many cards on one switch as there are MAC
    addresses, the first one is the one it boots by."""

    def __init__(
        self,
        directory: Path,
        kernel: Path,
        initramfs: Path,
        words: dict[str, str],
        rtc: str = "utc",
        macs: tuple[str, ...] = (MAC,),
    ) -> None:
        self.api_port = unused_port()
        self.console_file, self._monitor = directory / "console.log", directory / "monitor"
        append = "console=ttyS0 quiet mitigations=off no_timer_check edd=off panic=-1 "
        append += " ".join(f"layercake.{k}={v}" for k, v in words.items())
        command = [
            "qemu-system-x86_64",
            "-M",
            "q35,graphics=off",
            *EMULATED,
            "-m",
            "512",
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-serial",
            f"file:{self.console_file}",
            "-rtc",
            f"base={rtc}",
            "-netdev",
            f"user,id=site,hostfwd=tcp:127.0.0.1:{self.api_port}-:8444",
            "-netdev",
            "hubport,hubid=0,id=uplink,netdev=site",
            "-monitor",
            f"unix:{self._monitor},server=on,wait=off",
            *(
                word
                for at, mac in enumerate(macs)
                for word in (
                    "-netdev",
                    f"hubport,hubid=0,id=n{at}",
                    "-device",
                    f"virtio-net-pci,id=card{at},netdev=n{at},mac={mac},romfile=",
                )
            ),
            "-kernel",
            str(kernel),
            "-initrd",
            str(initramfs),
            "-append",
            append,
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def console(self) -> str:
        return self.console_file.read_text(errors="replace") if self.console_file.exists() else ""

    def cable(self, card: int, plugged: bool) -> None:
        """Plugs a card's cable in, or pulls it out."""
        with connected(self._monitor, self.process) as monitor:
            monitor.settimeout(patience(30))
            seen = b""
            for command in (b"", f"set_link card{card} {'on' if plugged else 'off'}\n".encode()):
                monitor.sendall(command)
                while not seen.endswith(b"(qemu) "):
                    seen += monitor.recv(4096)
                seen = b""

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def start(
    directory: Path,
    built: Built,
    head: FakeHead,
    rtc: str = "utc",
    macs: tuple[str, ...] = (MAC,),
    **words: str,
) -> Machine:
    """A machine that boots minOS for a head."""
    image = directory / "minos.img"
    append_files(built.image, {"etc/layercake/ca.pem": head.authority.read_bytes()}, image)
    usual = {
        "node": head.node,
        "name": "n1",
        "mac": MAC,
        "ip": "10.0.2.15/24",
        "gateway": "10.0.2.2",
        "head": head.url,
        "sync": head.sync,
        "token": "good-token",
    }
    return Machine(directory, built.vmlinuz, image, usual | words, rtc, macs)


class FileService:
    """The image server on a thread."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self.server = ImageServer(directory, ["127.0.0.1"], 0)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def document(
    store: ImageStore, service: FileService, path: Path, name: str, systemd: bool
) -> dict[str, Any]:
    image = store.add(path, name, {"systemd": systemd})
    health = {"kind": "systemd", "unit": "multi-user.target", "start_s": 200} if systemd else None
    content = image.digest.partition(":")[2]
    return {
        "name": name,
        "digest": image.digest,
        "size": image.size,
        "container": image.container.to_wire() | {"health": health},
        "url": f"http://10.0.2.2:{service.server.port}/images/{content}?{Tickets(store.directory).issue(content, 'n1')}",
    }


def run(head: FakeHead, machine: Machine, command: str, container: str = "") -> str:
    """What a shell on the node, or in a container, prints."""
    credential = bearer(head.key, bytes.fromhex(head.node.replace("-", "")), head.session, TO_NODE)
    client = NodeClient(
        machine.api_port, head.authority, name_of(head.node, head.session), credential
    )
    status, lines = client.ask(
        "POST", "/v1/exec", {"command": ["sh", "-c", command], "container": container}
    )
    assert status == 200 and lines[-1] == {"exit": 0}, (status, lines)
    return b"".join(base64.b64decode(line["out"]) for line in lines if "out" in line).decode()
