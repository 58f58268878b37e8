"""The head of the soak, as a process: nodes that change what they say, and the API for dashboards.

    python -m tests.bench._soakhead DIRECTORY AGENTS ROUNDS

It prints where its API is and a token, then samples, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec

from layercake.agents import pki
from tests.bench._soaksample import SAMPLES, sample
from tests.support.api import token
from tests.support.world import World

_ROUND_S = 0.02


def inventory(count: int) -> str:
    """So many nodes without images."""
    lines = ["nodes:"]
    for number in range(count):
        mac = f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"
        address = f"10.1.{number >> 8}.{number & 255}"
        lines.append(f'  n{number:05d}: {{mac: "{mac}", ip: {address}, images: []}}')
    return "\n".join(lines)


async def serve(directory: Path, agents: int, rounds: int) -> None:
    """Lets the nodes say something in each round."""
    pki.create(directory / "pki", "127.0.0.1")
    world = World(directory)
    world.settings = msgspec.structs.replace(world.settings, socket=str(directory / "api.sock"))
    world.head.settings = world.settings
    world.open()
    await world.ops.inventory.apply(inventory(agents), "soak.yaml", None, True)
    names = [f"n{number:05d}" for number in range(agents)]
    for name in names:
        world.attach(name)
    api = world.head.api()
    await api.start()
    bearer = (await token(world.head, "bench", "operator"))["Authorization"].partition(" ")[2]
    print(json.dumps({"port": api.port, "token": bearer}), flush=True)
    for number in range(rounds):
        busy = "BUSY" if number % 2 else "FREE"
        for name in names:
            world.send(world.hello(name, image="IDLE", busy=busy))
        await asyncio.sleep(_ROUND_S)
        if number % max(1, rounds // SAMPLES) == 0:
            print(json.dumps(sample(directory)), flush=True)
    await api.stop()
    await world.close_head()


async def dashboard(port: int, bearer: str, going: Callable[[], bool]) -> int:
    """A page: signs in by its token, hears some events, asks for the nodes, and goes; again and
    again. How often it came."""
    url = f"https://127.0.0.1:{port}"
    headers = {"Authorization": f"Bearer {bearer}"}
    visits = 0
    while going():
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as browser,
                browser.ws_connect(f"{url}/v1/events/ws", ssl=False, max_msg_size=0) as events,
                browser.get(f"{url}/v1/nodes", ssl=False) as nodes,
            ):
                await nodes.read()
                async with asyncio.timeout(0.5):
                    await events.receive()
        except (TimeoutError, aiohttp.ClientError):
            pass
        visits += 1
        await asyncio.sleep(0.2)
    return visits


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
