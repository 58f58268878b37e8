"""The head of `roll_sim`: a whole one with its services, whose nodes and sessions are installed in bulk.

A join costs a TLS handshake and a flush of the database; ten thousand of them would take minutes and are no part of a roll. So
the nodes are put into the store as the inventory would, and each gets a session as a join would give it, whose keys go to a file
that the simulated agents read. From there on nothing is simulated on this side.

    python -m tests.bench._simhead DIRECTORY NODES
"""

from __future__ import annotations

import asyncio
import base64
import cProfile
import json
import os
import pstats
import signal
import sys
from pathlib import Path

from layercake.api.server import Api
from layercake.head import pki
from layercake.head.head import Head
from layercake.head.operations import Operations
from layercake.head.settings import Settings
from layercake.head.state.store import Session, WantedImage
from layercake.inventory.schema import node_id
from layercake.kraken.converge import Discovered

ADDRESS = "10.97.0.1"


async def install(head: Head, count: int, image: WantedImage, path: Path) -> None:
    """The nodes, their sessions, and the file that tells the agents of them."""
    agents, records = [], []
    async with head.desire.draft() as draft:
        for number in range(count):
            name = f"s{number:05d}"
            mac = f"52:54:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
            ip = f"10.98.{number // 250}.{number % 250 + 1}"
            node = head.table.node({"id": node_id(name), "name": name, "macs": [mac], "ip": ip, "images": [image.name]})
            records.append(head.add(draft, node))
            head.desire.want(draft, records[-1], (image,))
    for number, record in enumerate(records):
        record.session = Session(number + 1, number.to_bytes(32, "big"), "boot-1", head.clock())
        head.engine.post(record, Discovered({"power": "ON", "boot": "INIT", "run": "INIT"}, "installed in bulk"))
        key = base64.b64encode(record.session.key).decode()
        agents.append({"name": record.name, "node": record.node.id, "session": number + 1, "key": key})
    layout = head.table.default_planner.layout.to_wire()
    path.write_text(json.dumps({"epoch": head.store.epoch, "layout": layout, "agents": agents}))


async def serve(directory: Path, count: int) -> None:
    """Until SIGTERM."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    settings = Settings(interface="br0", address=ADDRESS, socket=str(directory / "api.sock"))
    head = Head(directory, settings)
    api, operations, stop = Api(head), Operations(head), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await head.start()
    for name in ("one", "two"):
        file = directory / f"{name}.squashfs"
        file.write_bytes(b"hsqs" + name.encode() * 100)
        await operations.images.add(file, name, {"systemd": False})
    image = head.images.get("one")
    partial = directory / ".agents.json"
    await install(head, count, WantedImage(image.name, image.digest, image.size, image.container.to_wire()), partial)
    await head.database.flush(head.store)
    await api.start()
    partial.replace(directory / "agents.json")
    try:
        await stop.wait()
    finally:
        await api.stop()
        await head.stop()


def main() -> None:
    """With PROFILE in the environment, a profile goes to standard error at the end."""
    os.umask(0o077)
    profile = cProfile.Profile() if os.environ.get("PROFILE") else None
    if profile:
        profile.enable()
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
    if profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats(os.environ["PROFILE"]).print_stats(60)


if __name__ == "__main__":
    main()
