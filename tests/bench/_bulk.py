"""A head and a fleet for benchmarks, whose nodes and sessions are installed in bulk.

A join costs a TLS handshake and a flush of the database; a hundred thousand of them would take most
of an hour and are no part of what is measured. So the nodes are put into the store as the inventory
would, and each gets a session as a join would give it, whose keys go to a file that the fleet
reads. From there on nothing is simulated on the head's side.

    python -m tests.bench._bulk head DIRECTORY NODES HELLO_S
    python -m tests.bench._bulk fleet DIRECTORY [SILENT HUNG]

SIGUSR1 makes a share SILENT of the agents fall silent, and a share HUNG answer no requests; SIGUSR2
brings them back.
"""

from __future__ import annotations

import asyncio
import base64
import cProfile
import ipaddress
import json
import os
import pstats
import signal
import sys
from pathlib import Path

import msgspec

from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.agents.settings import SyncSettings
from layercake.base.tcp_listener import raise_file_limit
from layercake.features.images.operations import Images
from layercake.fleet.store import Session, WantedImage
from layercake.head.head import Head
from layercake.head.settings import Settings
from layercake.inventory.schema import node_id
from layercake.kraken.converge import Discovered
from layercake.kraken.variables import Layout
from layercake.moduleapi.event_loop.slices import TimeSlice
from layercake.sim.fleet.agent import Facts
from layercake.sim.fleet.faults import Faults
from layercake.sim.fleet.fleet import BootTimes, Fleet
from layercake.sim.fleet.fleet import Head as Where
from layercake.sim.fleet.machine import MachineIdentity

ADDRESS = "10.97.0.1"
KEYS = "agents.json"
CONNECTIONS = 256
SILENT_SHARE = 1 / 3
MANY = 20_000
ONE_S = 0.001
"""More agents than these begin one after the other, with so many seconds in between; their nodes
are known to run what they shall beforehand, as a head would time the last ones out before their
agents begin."""
_FIRST = ipaddress.IPv4Address("10.98.0.1")


async def install(head: Head, count: int, image: WantedImage, path: Path) -> None:
    """The nodes, their sessions, and the file that tells the agents of them. In slices, as the head
    does all that takes long: how late its loop was is measured, too."""
    agents = []
    records = []
    turn = TimeSlice()
    async with head.desire.transaction() as transaction:
        for number in range(count):
            name = f"s{number:05d}"
            mac = (0x525400000000 + number).to_bytes(6, "big").hex(":")
            node = head.table.node(
                {
                    "id": node_id(name),
                    "name": name,
                    "macs": [mac],
                    "ip": str(_FIRST + number),
                    "images": [image.name],
                }
            )
            records.append(head.membership.add(transaction, node))
            head.desire.set_images(transaction, records[-1], (image,))
            if turn.used():
                await turn.pause()
    known = {"power": "ON", "boot": "INIT", "run": "INIT"}
    if count > MANY:
        known |= {"run": "SYNC", "busy": "FREE", "image": "ACTIVE"}
    for number, record in enumerate(records):
        record.running = record.wanted if count > MANY else ()
        record.session = Session(number + 1, number.to_bytes(32, "big"), "boot-1", head.clock())
        head.engine.post(record, Discovered(known, "installed in bulk"))
        key = base64.b64encode(record.session.key).decode()
        agents.append(
            {"name": record.name, "node": record.node.id, "session": number + 1, "key": key}
        )
        if turn.used():
            await turn.pause()
    layout = head.table.default_planner.layout.to_wire()
    timers = head.settings.sync
    told = {
        "epoch": head.store.epoch,
        "layout": layout,
        "agents": agents,
        "hello_s": timers.hello_s,
        "sync": timers.port,
        "tls": head.settings.api_port,
    }
    await asyncio.to_thread(path.write_bytes, msgspec.json.encode(told))


async def serve(directory: Path, count: int, hello_s: float) -> None:
    """The head, until SIGTERM."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    timers = SyncSettings(hello_s=hello_s, dead_s=3 * hello_s)
    settings = Settings(
        interface="br0", address=ADDRESS, socket=str(directory / "api.sock"), sync=timers
    )
    head = Head(directory, settings)
    api = head.api()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await head.start()
    for name in ("one", "two"):
        file = directory / f"{name}.squashfs"
        file.write_bytes(b"hsqs" + name.encode() * 100)
        await head.part(Images).add(file, name, {"systemd": False})
    image = head.part(ImageStore).get("one")
    partial = directory / f".{KEYS}"
    await install(
        head,
        count,
        WantedImage(image.name, image.digest, image.size, image.container.to_wire()),
        partial,
    )
    await head.database.flush(head.store)
    await api.start()
    partial.replace(directory / KEYS)
    try:
        await stop.wait()
    finally:
        await api.stop()
        await head.stop()


async def play(directory: Path, silent: float = SILENT_SHARE, hung: float = 0.0) -> None:
    """The fleet, until SIGTERM."""
    data = json.loads((directory / KEYS).read_text())
    layout = Layout.from_wire(data["layout"])
    where = Where(
        address=ADDRESS,
        tls=data["tls"],
        sync=data["sync"],
        http=0,
        authority=directory / "pki" / "ca.pem",
    )
    fleet = Fleet(
        [MachineIdentity(a["name"], a["node"], "", "") for a in data["agents"]],
        where,
        Faults(),
        BootTimes(),
        own=False,
        connections=CONNECTIONS,
    )
    names = [a["name"] for a in data["agents"]]
    first = round(len(names) * silent)
    then = first + round(len(names) * hung)

    def harm(harmed: bool) -> None:
        fleet.darken(names[:first], dark=harmed)
        for name in names[first:then]:
            if (agent := fleet.machines[name].agent) is not None:
                agent.hung = harmed

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, harm, True)
    loop.add_signal_handler(signal.SIGUSR2, harm, False)
    await fleet.start()
    for a in data["agents"]:
        facts = Facts(
            a["session"], base64.b64decode(a["key"]), data["epoch"], layout, data["hello_s"]
        )
        fleet.attach(a["name"], facts)
        if len(data["agents"]) > MANY:  # else HELLOs come too late behind 100,000 requests
            await asyncio.sleep(ONE_S)
    await stop.wait()
    await fleet.stop()


def main() -> None:
    """With PROFILE in the environment, a profile goes to standard error at the end."""
    os.umask(0o077)
    raise_file_limit()
    profile = cProfile.Profile() if os.environ.get("PROFILE") else None
    if profile:
        profile.enable()
    part, directory, *numbers = sys.argv[1:]
    asyncio.run(
        serve(Path(directory), int(numbers[0]), float(numbers[1]))
        if part == "head"
        else play(Path(directory), *map(float, numbers))
    )
    if profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats(os.environ["PROFILE"]).print_stats(60)


if __name__ == "__main__":
    main()
