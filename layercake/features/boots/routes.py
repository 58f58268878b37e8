"""The routes of boot sets: which there are, the default, removing one, and rolls to one."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from layercake.api.route import CALLER, Reach, route
from layercake.features.boots.answers import (
    BootSetList,
    DefaultSet,
    OneBootSet,
    Removed,
    RemovedSets,
)
from layercake.features.boots.boot_sets import BootSets
from layercake.features.boots.operations import BootSetChanges
from layercake.features.boots.views import boot_set_view, boots_view
from layercake.features.rolls.answers import OneRoll
from layercake.features.rolls.operations import RollStart
from layercake.features.rolls.views import roll_view
from layercake.fleet.store import Store
from layercake.moduleapi.module import Role


class BootDefault(msgspec.Struct, forbid_unknown_fields=True):
    """What nodes boot that no roll took elsewhere: those without a profile, or with `of_profile`
    those of the set's profile."""

    name: str
    by: str = ""
    of_profile: bool = False


class BootRoll(RollStart, forbid_unknown_fields=True):
    """A roll to the boot set `image`: each node is started anew, or with `agent_only` its agent is
    replaced in place. The rest is as with images; `replace` and `on_stage_failure` mean nothing
    here."""

    agent_only: bool = False


class BootSetRoutes:
    """Boot sets, and rolls to one."""

    def __init__(self, boots: BootSetChanges, sets: BootSets, store: Store) -> None:
        self._boots = boots
        self._sets = sets
        self._store = store

    @route("GET", "/v1/boot", Role.VIEWER, Reach.SHOWN, returns=BootSetList)
    async def show(self, request: web.Request, body: None) -> Any:
        """The boot sets, newest first, and who uses them."""
        sets = boots_view(self._boots.all())
        for found in sets:
            found |= {
                users: request[CALLER].only(self._store, found[users])
                for users in ("boot", "run", "agents")
            }
        return {"sets": sets}

    @route(
        "POST", "/v1/boot/default", Role.OPERATOR, Reach.SITE, body=BootDefault, returns=DefaultSet
    )
    async def default(self, request: web.Request, body: BootDefault) -> Any:
        """Choose what all other nodes boot."""
        return {
            "default": body.name,
            "nodes": await self._boots.choose(
                body.name, request[CALLER].by(body.by), of_profile=body.of_profile
            ),
        }

    @route("GET", "/v1/boot/{name}", Role.VIEWER, Reach.SHOWN, returns=OneBootSet)
    async def one(self, request: web.Request, body: None) -> Any:
        """One boot set: its profile, and what takes the space."""
        return {"set": boot_set_view(self._sets.get(request.match_info["name"]))}

    @route("DELETE", "/v1/profiles/{name}", Role.OPERATOR, Reach.SITE, returns=RemovedSets)
    async def remove_profile(self, request: web.Request, body: None) -> Any:
        """Delete the boot sets of a profile that nobody needs."""
        return {"removed": await self._boots.remove_profile(request.match_info["name"])}

    @route("DELETE", "/v1/boot/{name}", Role.OPERATOR, Reach.SITE, returns=Removed)
    async def remove(self, request: web.Request, body: None) -> Any:
        """Delete a boot set that nobody needs."""
        await self._boots.remove(request.match_info["name"])
        return {"removed": request.match_info["name"]}

    @route("POST", "/v1/boot/roll", Role.OPERATOR, Reach.RANGE, body=BootRoll, returns=OneRoll)
    async def roll(self, request: web.Request, body: BootRoll) -> Any:
        """Roll nodes to a boot set, or their agents in place."""
        begun = await self._boots.roll(
            replace(body, by=request[CALLER].by(body.by)), agent_only=body.agent_only
        )
        return {"roll": roll_view(begun, self._store, "none")}
