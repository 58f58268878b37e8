"""The routes of the inventory."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import BIG_BODY, CALLER, Reach, route, while_there
from layercake.base.quotas import RateLimiter
from layercake.base.text import count_of
from layercake.features.files.answers import FileDiffs
from layercake.features.files.operations import FileChanges
from layercake.features.inventory.answers import (
    Applied,
    GuestList,
    InventoryPlan,
    NameList,
    NetworkList,
    RenamedNodes,
)
from layercake.features.inventory.new_inventory import Consent
from layercake.features.inventory.operations import InventoryChanges
from layercake.features.inventory.renaming import NodeNames
from layercake.features.inventory.views import SiteViews
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError
from layercake.moduleapi.event_loop.slices import paced, slowly
from layercake.moduleapi.module import Role

OPEN = frozenset(
    {"state", "images", "groups", "domains", "arch", "firmware", "ip", "macs", "network"}
)
"""The fields whose values a viewer is shown: those of every node, and none of a module's."""
VIEWERS_PART = 0.05
VIEWERS_BURST_S = 0.25
"""What the plans of all viewers take of the head's loop: a quarter of a second at once, which is a
plan of a few changes among ten thousand nodes, and a twentieth of its time from there on. One that
changes them all takes a second and a half of it, and nodes that join are not to wait for that."""


class InventoryText(msgspec.Struct, forbid_unknown_fields=True):
    """An inventory to plan. `file` is its name, for messages."""

    yaml: str
    file: str = "inventory.yaml"


class ChangeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a person has agreed to: that images which `image roll` has brought since are taken back,
    that all nodes change their images at once, and that secrets go to other places than before.
    `by` says who asks, and `reason` why, for the history."""

    take_back: bool = False
    at_once: bool = False
    confirm_secrets: bool = False
    by: str = ""
    reason: str = ""


class ApplyRequest(ChangeRequest, forbid_unknown_fields=True, kw_only=True):
    """An inventory to apply. `digest` is the plan's: it is refused if the state has changed since.

    `allow_remove`, `take_back` and `at_once` are what a person has agreed to: that nodes are
    removed, that images which `image roll` has brought since are taken back, that all nodes change
    their images at once. `confirm_secrets`: that secrets go to other places than before, as the
    plan's `secrets` says. `by` says who asks, and `reason` why, for the history.
    """

    yaml: str
    file: str = "inventory.yaml"
    digest: str | None = None
    allow_remove: bool = False


class EntryRequest(ChangeRequest, forbid_unknown_fields=True, kw_only=True):
    """Other values in a node's entry of the inventory in force: `set` by key, those in a mapping as
    "bmc.address"; those of `unset` are as if nobody said anything of them. For the rest see
    ApplyRequest."""

    set: dict[str, Any] = {}
    unset: list[str] = []


MOST_CHANGED = 1000
"""Of how many nodes the entries are changed at once: each is checked as an inventory is."""


class EntriesRequest(EntryRequest, forbid_unknown_fields=True, kw_only=True):
    """The same for each node of a range."""

    range: str


class RenameRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Other names for the nodes of a range: `to` is as many names, in the same order. `by` says who
    asks, and `reason` why, for the history."""

    range: str
    to: str
    by: str = ""
    reason: str = ""


class DiffRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What would change of the files of these nodes, with the directory of files as it is now, and,
    if `yaml` is given, with that inventory."""

    range: str
    yaml: str = ""
    file: str = "inventory.yaml"


class InventoryRoutes:
    """The inventory."""

    def __init__(
        self,
        inventory: InventoryChanges,
        names: NodeNames,
        site: SiteViews,
        files: FileChanges,
        store: Store,
    ) -> None:
        self._store = store
        self._names = names
        self._inventory = inventory
        self._site = site
        self._files = files
        self._viewers = RateLimiter(VIEWERS_PART, VIEWERS_BURST_S, time.monotonic)

    @route(
        "POST",
        "/v1/inventory/plan",
        Role.VIEWER,
        Reach.SITE,
        body=InventoryText,
        most=BIG_BODY,
        returns=InventoryPlan,
    )
    async def plan(self, request: web.Request, body: InventoryText) -> Any:
        """What applying an inventory would do."""
        if not request[CALLER].looks_only:
            return await while_there(request, self._inventory.plan(body.yaml, body.file))
        with paced(partial(self._viewers.charge, "plans")):
            plan = self._inventory.plan(body.yaml, body.file, brief=True)
            return await _for_viewers(await while_there(request, plan))

    @route(
        "POST",
        "/v1/inventory/apply",
        Role.ADMIN,
        Reach.SITE,
        body=ApplyRequest,
        most=BIG_BODY,
        returns=Applied,
    )
    async def apply(self, request: web.Request, body: ApplyRequest) -> Any:
        """Make an inventory the desired state."""
        consent = Consent(
            body.take_back, body.at_once, request[CALLER].by(body.by), body.confirm_secrets
        )
        return await self._inventory.apply(
            body.yaml, body.file, body.digest, body.allow_remove, consent
        )

    @route("PATCH", "/v1/nodes/{name}", Role.ADMIN, Reach.NODE, body=EntryRequest, returns=Applied)
    async def change(self, request: web.Request, body: EntryRequest) -> Any:
        """Change one node's entry of the inventory in force."""
        caller = request[CALLER]
        consent = Consent(
            body.take_back, body.at_once, caller.by(body.by), body.confirm_secrets, caller.groups
        )
        return await self._inventory.change(
            request.match_info["name"], body.set, body.unset, consent
        )

    @route("PATCH", "/v1/nodes", Role.ADMIN, Reach.RANGE, body=EntriesRequest, returns=Applied)
    async def change_some(self, request: web.Request, body: EntriesRequest) -> Any:
        """Change the entries of some nodes, all of them or none."""
        caller = request[CALLER]
        consent = Consent(
            body.take_back, body.at_once, caller.by(body.by), body.confirm_secrets, caller.groups
        )

        def select() -> list[Record]:
            records = self._store.select(body.range)
            if len(records) > MOST_CHANGED:
                raise InputError(
                    f"cannot change {count_of(len(records), 'node')} at once: {MOST_CHANGED} are "
                    "possible",
                    hint="write it into the inventory, under `defaults` or a group, and apply it",
                )
            return records

        return await self._inventory.change_some(select, body.set, body.unset, consent)

    @route(
        "POST",
        "/v1/nodes/rename/plan",
        Role.VIEWER,
        Reach.SITE,
        body=RenameRequest,
        returns=RenamedNodes,
    )
    async def plan_rename(self, request: web.Request, body: RenameRequest) -> Any:
        """What giving nodes other names would do."""
        return await self._names.plan(body.range, body.to)

    @route(
        "POST", "/v1/nodes/rename", Role.ADMIN, Reach.SITE, body=RenameRequest, returns=RenamedNodes
    )
    async def rename(self, request: web.Request, body: RenameRequest) -> Any:
        """Give nodes other names, all of them or none."""
        return await self._names.rename(body.range, body.to, request[CALLER].by(body.by))

    @route("GET", "/v1/networks", Role.VIEWER, Reach.SHOWN, returns=NetworkList)
    async def networks(self, request: web.Request, body: None) -> Any:
        """The networks that nodes are in."""
        return {"networks": await self._site.networks(request[CALLER].bound)}

    @route("GET", "/v1/networks/guests", Role.OPERATOR, Reach.SITE, returns=GuestList)
    async def guests(self, request: web.Request, body: None) -> Any:
        """The machines that are not in the inventory and have an address of the head."""
        return {"guests": await self._site.guests()}

    @route("GET", "/v1/dns", Role.VIEWER, Reach.SHOWN, returns=NameList, query=("name",))
    async def names(self, request: web.Request, body: None) -> Any:
        """The names that the head's DNS has, or what one of them leads to."""
        caller = request[CALLER]
        return await self._site.names(
            request.query.get("name", ""), caller.bound, brief=caller.looks_only
        )

    @route(
        "POST",
        "/v1/files/diff",
        Role.ADMIN,
        Reach.RANGE,
        body=DiffRequest,
        most=BIG_BODY,
        returns=FileDiffs,
    )
    async def diff(self, request: web.Request, body: DiffRequest) -> Any:
        """How files of nodes would change."""
        caller = request[CALLER]
        bound = caller.groups is not None
        if bound and body.yaml:
            raise caller.refusal("compare an inventory", "it is about others than the nodes")
        entries = await self._inventory.entries(body.yaml, body.file) if body.yaml else {}
        return {"changes": await self._files.diff(body.range, entries, bound=bound)}


async def _for_viewers(found: dict[str, Any]) -> dict[str, Any]:
    """A plan without the values of modules' fields, and without where the secrets go, which says
    where a BMC is. The changes are encoded a little at a time: the answer may have 10 MB."""

    def shown(change: dict[str, Any]) -> msgspec.Raw:
        fields = {k: v if k in OPEN else [None, None] for k, v in change["fields"].items()}
        return msgspec.Raw(msgspec.json.encode({**change, "fields": fields}))

    changes = [change async for change in slowly(map(shown, found["changes"]))]
    hidden = [{**secret, "from": "", "to": ""} for secret in found["secrets"]]
    return {**found, "changes": changes, "secrets": hidden}
