"""The head of `abuse`: a whole one over nodes that may join, each once, and one that has joined and
is somebody else's by now.

Its windows are open from the start: what opens one is a power-cycle, which is no part of this. What
attackers and the driver need to know goes to a file.

    python -m tests.bench._abusehead DIRECTORY ADDRESS NODES [--bare]

With --bare it has no services, and needs no address but one of this machine: for tests without a
namespace.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.agents.settings import SyncSettings
from layercake.base.logs import lines
from layercake.base.process import THRESHOLDS
from layercake.base.tcp_listener import raise_file_limit
from layercake.features.access.tokens import FILE_NAME, blake2b
from layercake.features.guard.guard import Guard
from layercake.fleet.store import Session, WantedImage
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from layercake.inventory.schema import node_id
from layercake.kraken.converge import Discovered, Held
from tests.support.operations import Operations

WINDOW_S = 7200.0
VIEWER, WATCHER = "viewer-token", "watcher-token"
"""The viewer who attacks, and one who only looks: who asks for much waits for it himself."""


def node(number: int, address: str) -> dict[str, Any]:
    """A node's record; its address is one of this machine's, so that it can join from there."""
    name, mac = (
        f"s{number:05d}",
        f"52:54:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
    )
    ip = (
        f"10.98.{number // 250}.{number % 250 + 1}"
        if address.startswith("10.")
        else f"127.98.{number // 250}.{number % 250 + 1}"
    )
    return {"id": node_id(name), "name": name, "macs": [mac], "ip": ip, "images": []}


async def install(head: Head, count: int) -> dict[str, Any]:
    """The nodes and their windows; the first has a session. What others need to know of them."""
    image = head.part(ImageStore).get("one")
    wanted = WantedImage(image.name, image.digest, image.size, image.container.to_wire())
    records = []
    async with head.desire.transaction() as transaction:
        for number in range(count):
            records.append(
                head.membership.add(
                    transaction, head.table.node(node(number, head.settings.address))
                )
            )
            head.desire.set_images(transaction, records[-1], (wanted,) if number == 0 else ())
    rogue = records[0]
    rogue.session = Session(1, b"r" * 32, "boot-1", head.clock())
    head.engine.post(rogue, Discovered({"power": "ON", "boot": "INIT", "run": "INIT"}, "installed"))
    claims = []
    for record in records[1:]:
        head.engine.post(
            record, Held(head.clock() + WINDOW_S)
        )  # else it would be looked for, and started anew
        token = head.joining.open(record, WINDOW_S)
        claims.append(
            {
                "ip": record.node.ip,
                "node": record.node.id,
                "token": token,
                "mac": record.node.macs[0],
            }
        )
    key = base64.b64encode(rogue.session.key).decode()
    return {
        "claims": claims,
        "rogue": {"node": rogue.node.id, "session": 1, "key": key, "name": rogue.name},
        "viewer": VIEWER,
        "watcher": WATCHER,
        "digest": image.digest,
    }


async def serve(directory: Path, address: str, count: int, *, bare: bool) -> None:
    """Until SIGTERM."""
    pki.create(directory / "pki", address)
    (directory / "boot").mkdir()
    tokens = {blake2b(token): "viewer" for token in (VIEWER, WATCHER)}
    (directory / FILE_NAME).write_text(json.dumps(tokens))
    patient = SyncSettings(
        port=0 if bare else 31415, dead_s=WINDOW_S
    )  # who has joined says nothing more
    head = Head(
        directory,
        Settings(
            interface="lo" if bare else "br0",
            api_port=0 if bare else 8443,
            sync=patient,
            address=address,
            socket=str(directory / "api.sock"),
        ),
    )
    api, operations, stop = head.api(), Operations(head), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if bare:
        sys.setswitchinterval(THREAD_S)
        gc.set_threshold(*THRESHOLDS)
        head.load()
        head.sync.open()
        tasks = [
            asyncio.create_task(work)
            for work in (head.engine.run(), head.life.periodic(), head.database.run(head.store))
        ]
    else:
        await head.start()
    for name in ("one", "two"):
        file = directory / f"{name}.squashfs"
        file.write_bytes(b"hsqs" + name.encode() * 100)
        await operations.images.add(file, name, {"systemd": False})
    facts = await install(head, count)
    await head.database.flush(head.store)
    gc.collect()
    gc.freeze()  # as one does that was started over these nodes
    await api.start()
    facts |= {
        "address": address,
        "port": api.port,
        "socket": head.settings.socket,
        "ca": str(directory / "pki" / "ca.pem"),
    }
    (directory / ".facts").write_text(json.dumps(facts))
    (directory / ".facts").replace(directory / "facts.json")
    await stop.wait()
    await api.stop()
    if bare:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await head.part(Guard).stop()
        head.sync.close()
        await head.database.close(head.store)
    else:
        await head.stop()


def main() -> None:
    """As `layercake serve` does it."""
    os.umask(0o077)
    lines.start("%(levelname)s %(name)s: %(message)s")
    raise_file_limit()
    run = partial(
        serve, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), bare="--bare" in sys.argv
    )
    asyncio.run(run())


if __name__ == "__main__":
    main()
