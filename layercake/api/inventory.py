"""The routes of the inventory."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.inventory import Applied, GuestList, InventoryPlan, NameList, NetworkList
from layercake.api.route import CALLER, Reach, Route, while_there
from layercake.head.new_inventory import Consent
from layercake.head.operations import Operations
from layercake.head.views.inventory import guests_view, names_view, networks_view
from layercake.moduleapi.module import Role

_OPEN = frozenset(
    {"state", "images", "groups", "domains", "arch", "firmware", "ip", "macs", "network"}
)
"""The fields whose values a viewer is shown: those of every node, and none of a module's."""


class InventoryText(msgspec.Struct, forbid_unknown_fields=True):
    """An inventory to plan. `file` is its name, for messages."""

    yaml: str
    file: str = "inventory.yaml"


class ApplyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An inventory to apply. `digest` is the plan's: it is refused if the state has changed since.

    `allow_remove`, `take_back` and `at_once` are what a person has agreed to: that nodes are
    removed, that images which `image roll` has brought since are taken back, that all nodes change
    their images at once. `confirm_secrets`: that secrets go to other places than before, as the
    plan's `secrets` says. `by` says who asks.
    """

    yaml: str
    file: str = "inventory.yaml"
    digest: str | None = None
    allow_remove: bool = False
    take_back: bool = False
    at_once: bool = False
    confirm_secrets: bool = False
    by: str = ""


class EntryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Other values in a node's entry of the inventory in force: `set` by key, those in a mapping as
    "bmc.address"; those of `unset` are as if nobody said anything of them. For the rest see
    ApplyRequest."""

    set: dict[str, Any] = {}
    unset: list[str] = []
    take_back: bool = False
    at_once: bool = False
    confirm_secrets: bool = False
    by: str = ""


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def plan(request: web.Request, body: InventoryText) -> Any:
        found = await while_there(request, ops.inventory.plan(body.yaml, body.file))
        if request[CALLER].looks_only:
            found["changes"] = [
                {
                    **c,
                    "fields": {
                        k: v if k in _OPEN else [None, None] for k, v in c["fields"].items()
                    },
                }
                for c in found["changes"]
            ]
            found["secrets"] = [
                {**s, "from": "", "to": ""} for s in found["secrets"]
            ]  # where a BMC is
        return found

    async def apply(request: web.Request, body: ApplyRequest) -> Any:
        consent = Consent(
            body.take_back, body.at_once, request[CALLER].by(body.by), body.confirm_secrets
        )
        return await ops.inventory.apply(
            body.yaml, body.file, body.digest, body.allow_remove, consent
        )

    async def change(request: web.Request, body: EntryRequest) -> Any:
        consent = Consent(
            body.take_back, body.at_once, request[CALLER].by(body.by), body.confirm_secrets
        )
        return await ops.inventory.change(request.match_info["name"], body.set, body.unset, consent)

    async def networks(request: web.Request, body: None) -> Any:
        return {"networks": await networks_view(ops.head, request[CALLER].bound)}

    async def guests(request: web.Request, body: None) -> Any:
        return {"guests": await guests_view(ops.head)}

    async def names(request: web.Request, body: None) -> Any:
        caller = request[CALLER]
        return await names_view(
            ops.head, request.query.get("name", ""), caller.bound, brief=caller.looks_only
        )

    return (
        Route(
            "GET",
            "/v1/dns",
            Role.VIEWER,
            Reach.SHOWN,
            "The names that the head's DNS has, or what one of them leads to",
            names,
            returns=NameList,
            query=("name",),
        ),
        Route(
            "GET",
            "/v1/networks",
            Role.VIEWER,
            Reach.SHOWN,
            "The networks that nodes are in",
            networks,
            returns=NetworkList,
        ),
        Route(
            "GET",
            "/v1/networks/guests",
            Role.OPERATOR,
            Reach.SITE,
            "The machines that are not in the inventory and have an address of the head",
            guests,
            returns=GuestList,
        ),
        Route(
            "POST",
            "/v1/inventory/plan",
            Role.VIEWER,
            Reach.SITE,
            "What applying an inventory would do",
            plan,
            InventoryText,
            returns=InventoryPlan,
        ),
        Route(
            "POST",
            "/v1/inventory/apply",
            Role.ADMIN,
            Reach.SITE,
            "Make an inventory the desired state",
            apply,
            ApplyRequest,
            returns=Applied,
        ),
        Route(
            "PATCH",
            "/v1/nodes/{name}",
            Role.ADMIN,
            Reach.NODE,
            "Change one node's entry of the inventory in force",
            change,
            EntryRequest,
            returns=Applied,
        ),
    )
