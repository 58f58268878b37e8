"""Simulated nodes with their BMCs and agents in a process of their own, in the network namespace
that it is started in; each line on its standard input is answered with how they are.

python -m tests.support.simulated_nodes OPTIONS        JSON, the fields of Options
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from layercake.sim.fleet.faults import Faults
from layercake.sim.fleet.fleet import BootTimes, Fleet, Head
from layercake.sim.inventory import simulated_site


class Options(msgspec.Struct, frozen=True):
    """The inventory as text, where the nodes' heads are, with the file of their authority, and the
    socket that is made for their powerman."""

    inventory: str
    heads: list[str]
    authority: str
    bmcs: str
    tls: int
    sync: int
    http: int


class Nodes(msgspec.Struct, frozen=True):
    """How often each node was started, the commands that BMCs got besides questions, and the head
    that each node heard last."""

    lives: dict[str, int]
    commands: int
    heads: dict[str, str]


async def _serve(options: Options) -> None:
    first, *others = options.heads
    site = simulated_site(options.inventory, heads=[f"{first}/24"])
    head = Head(
        address=first,
        tls=options.tls,
        sync=options.sync,
        http=options.http,
        authority=Path(options.authority),
        bmcs=Path(options.bmcs),
        others=tuple(others),
    )
    fleet = Fleet(site.identities, head, Faults(), BootTimes(0.5, 0.2))
    await fleet.start()
    while await asyncio.to_thread(sys.stdin.readline):
        machines = fleet.machines
        nodes = Nodes(
            {name: machine.life for name, machine in machines.items()},
            fleet.bmcs.commands,
            {name: machine.head for name, machine in machines.items()},
        )
        print(json.dumps(msgspec.to_builtins(nodes)), flush=True)
    await fleet.stop()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=Options)))
