"""The power module's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.kraken.mutation import ENDLESS, Mutation
from layercake.moduleapi.module import Goals, Module, NodeFacts, Part, Reveal, Site
from powerman.calls import CALLS
from powerman.events import EVENTS
from powerman.health import CRITICAL, WARNING
from powerman.inventory import Bmc, complete, ip_of, secret_to, suits, unique, view, warnings
from powerman.mutations import ASKED, HEALTH, MUTATIONS, PERSON_S, ROOM, VARIABLES
from powerman.settings import PowerSettings, check, limit_s


def record(node: NodeFacts, bmc: Bmc | None, reveal: Reveal) -> dict[str, Any]:
    """What powerman is told of a node (powerman.settings.BmcSpec). It holds the BMC's password."""
    facts = None
    if bmc is not None:
        revealed = {"password": reveal(bmc.password), "key": reveal(bmc.key) if bmc.key else ""}
        facts = {**msgspec.to_builtins(bmc), **revealed}
    return {
        "name": node.name,
        "bmc": facts,
        "firmware": node.firmware,
        "boot_uri": node.offers.get("boot-uri", ""),
        "no_medium": node.offers.get("no-medium", ""),
    }


def offers(
    node: NodeFacts, bmc: Bmc | None, settings: PowerSettings | None, site: Site
) -> dict[str, str]:
    """The IP address of its BMC, for DNS; not for one that has a name of its own in the
    inventory."""
    address = "" if bmc is None else ip_of(bmc)
    return {"bmc-ip": address} if address else {}


def held(bmc: Bmc | None, values: Mapping[str, str]) -> str:
    """Why rolls are to leave a node out: by what its BMC says of its health, where the inventory
    wants that."""
    if bmc is None or bmc.health != "hold" or values.get(HEALTH.name) not in (WARNING, CRITICAL):
        return ""
    return f"its BMC says that its health is {values[HEALTH.name]}"


def tune(mutation: Mutation, bmc: Bmc | None, settings: PowerSettings | None) -> Mutation:
    """The engine waits as long as the slowest of BMCs may need: it is the handler that gives up on
    others earlier. What no BMC can do is left to a person."""
    if bmc is None and mutation.name in ASKED:
        return dataclasses.replace(
            mutation,
            timeout=PERSON_S,
            person=ASKED[mutation.name],
            on_timeout=None,
            retries=ENDLESS,
        )
    if bmc is None:
        return mutation
    return dataclasses.replace(
        mutation, timeout=ROOM * limit_s(mutation.name, settings or PowerSettings(), bmc)
    )


def tuned_by(bmc: Bmc) -> tuple[float, str, str]:
    """What of a BMC limit_s minds."""
    return bmc.timeout_s, bmc.boot, bmc.program


MODULE = Module(
    name="powerman",
    doc="Power, sensors and event logs by the nodes' BMCs (IPMI, Redfish), or power by a program "
    "of the site's own.",
    section="power",
    settings=PowerSettings,
    check=check,
    part=Part(Bmc, complete, unique, view, secret_to, warnings, suits=suits, at_boot=("boot",)),
    variables=VARIABLES,
    mutations=MUTATIONS,
    goals=Goals(up={"power": "ON"}, off={"power": "OFF"}),
    record=record,
    offers=offers,
    watches=("power", "boot", HEALTH.name),
    alive={"power": "ON"},
    held=held,
    tune=tune,
    tuned_by=tuned_by,
    calls=CALLS,
    events=EVENTS,
    service="powerman.service:PowerService",
)
