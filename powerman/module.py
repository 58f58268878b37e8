"""The power module's table."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from layercake.kraken.mutation import Mutation
from layercake.moduleapi.module import Goals, Module, NodeFacts, Part, Reveal
from powerman.calls import CALLS
from powerman.events import EVENTS
from powerman.inventory import TIMEOUT_S, Bmc, complete, secret_to, unique, view, warnings
from powerman.mutations import MUTATIONS, VARIABLES
from powerman.settings import PowerSettings


def record(node: NodeFacts, bmc: Bmc | None, reveal: Reveal) -> dict[str, Any]:
    """What powerman is told of a node (powerman.settings.BmcSpec). It holds the BMC's password."""
    facts = None if bmc is None else {**msgspec.to_builtins(bmc), "password": reveal(bmc.password)}
    return {"name": node.name, "bmc": facts, "firmware": node.firmware}


def tune(mutation: Mutation, bmc: Bmc | None, settings: PowerSettings | None) -> Mutation:
    """A BMC that is given more time for an operation has more for a step, which is several."""
    if bmc is None or bmc.timeout_s <= TIMEOUT_S:
        return mutation
    return dataclasses.replace(mutation, timeout=mutation.timeout * bmc.timeout_s / TIMEOUT_S)


MODULE = Module(
    name="powerman", doc="Power, sensors and event logs by the nodes' BMCs (IPMI, Redfish).",
    section="power", settings=PowerSettings, part=Part(Bmc, complete, unique, view, secret_to, warnings), variables=VARIABLES,
    mutations=MUTATIONS,
    goals=Goals(up={"power": "ON"}, off={"power": "OFF"}), record=record, watches=("power",), alive={"power": "ON"}, tune=tune,
    calls=CALLS, events=EVENTS, service="powerman.service:PowerService",
)
