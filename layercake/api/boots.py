"""The routes of boot sets: which there are, the default, removing one, and rolls to one."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.images import (
    BootSetList,
    DefaultSet,
    OneBootSet,
    OneRoll,
    Removed,
    RemovedSets,
)
from layercake.api.rolls import RollStart, ask_of
from layercake.api.route import CALLER, Reach, Route
from layercake.features.boots.views import boot_set_view, boots_view
from layercake.features.rolls.views import roll_view
from layercake.head.operations import Operations
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


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        sets = boots_view(ops.boots.all())
        for found in sets:
            found |= {
                users: request[CALLER].only(ops.head.store, found[users])
                for users in ("boot", "run", "agents")
            }
        return {"sets": sets}

    async def default(request: web.Request, body: BootDefault) -> Any:
        return {
            "default": body.name,
            "nodes": await ops.boots.choose(
                body.name, request[CALLER].by(body.by), of_profile=body.of_profile
            ),
        }

    async def one(request: web.Request, body: None) -> Any:
        return {"set": boot_set_view(ops.head.boots.get(request.match_info["name"]))}

    async def remove_profile(request: web.Request, body: None) -> Any:
        return {"removed": await ops.boots.remove_profile(request.match_info["name"])}

    async def remove(request: web.Request, body: None) -> Any:
        await ops.boots.remove(request.match_info["name"])
        return {"removed": request.match_info["name"]}

    async def roll(request: web.Request, body: BootRoll) -> Any:
        begun = await ops.boots.roll(body.range, ask_of(request, body), agent_only=body.agent_only)
        return {"roll": roll_view(begun, ops.head.store, "none")}

    return (
        Route(
            "GET",
            "/v1/boot",
            Role.VIEWER,
            Reach.SHOWN,
            "The boot sets, newest first, and who uses them",
            show,
            returns=BootSetList,
        ),
        Route(
            "POST",
            "/v1/boot/default",
            Role.OPERATOR,
            Reach.SITE,
            "Choose what all other nodes boot",
            default,
            BootDefault,
            returns=DefaultSet,
        ),
        Route(
            "POST",
            "/v1/boot/roll",
            Role.OPERATOR,
            Reach.RANGE,
            "Roll nodes to a boot set, or their agents in place",
            roll,
            BootRoll,
            returns=OneRoll,
        ),
        Route(
            "GET",
            "/v1/boot/{name}",
            Role.VIEWER,
            Reach.SHOWN,
            "One boot set: its profile, and what takes the space",
            one,
            returns=OneBootSet,
        ),
        Route(
            "DELETE",
            "/v1/profiles/{name}",
            Role.OPERATOR,
            Reach.SITE,
            "Delete the boot sets of a profile that nobody needs",
            remove_profile,
            returns=RemovedSets,
        ),
        Route(
            "DELETE",
            "/v1/boot/{name}",
            Role.OPERATOR,
            Reach.SITE,
            "Delete a boot set that nobody needs",
            remove,
            returns=Removed,
        ),
    )
