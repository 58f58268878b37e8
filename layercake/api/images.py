"""The routes of images: the store, what names pointed to, what is different between two, what
nobody needs, rolling at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.images import (
    Deleted,
    Difference,
    ImageAdded,
    ImageHistory,
    ImageList,
    ImageRoll,
    KeysGiven,
    Nothing,
    Sbom,
)
from layercake.api.route import CALLER, Reach, Route, while_there
from layercake.features.images.views import image_view
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class ImageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A squashfs file on the head, to be added to the image store under a name. The fields from
    `depends` on are optional parts of a container description, checked by
    imageapi.spec.container."""

    path: str
    name: str
    systemd: bool = True
    command: list[str] | None = None
    env: dict[str, str] = {}
    stop_timeout_s: float = 10.0
    restart: Literal["on-failure", "never", "always"] = "on-failure"
    depends: list[str] | None = None
    health: dict[str, Any] | Literal["none"] | None = None
    resources: dict[str, Any] | None = None
    devices: list[str] | None = None
    hooks: dict[str, Any] | None = None
    mounts: list[dict[str, Any]] | None = None
    workdir: str | None = None
    namespaces: list[str] | None = None
    hostname: str | None = None
    capabilities: list[str] | None = None
    no_new_privileges: bool | None = None
    user_namespace: bool | None = None
    kernel_modules: bool | None = None
    keep: list[str] | str | None = None

    def container(self) -> dict[str, Any]:
        """The container part."""
        return {k: v for k, v in msgspec.to_builtins(self).items() if k not in ("path", "name")}


class RollRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An image to roll to, in the place of `replace` or of all images of the nodes. Many running
    nodes go in batches, by rolls that the answer names, unless `at_once` is said. `by` says who
    asks."""

    range: str
    image: str
    replace: str | None = None
    at_once: bool = False
    by: str = ""


class KeysRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New keys for the nodes' access to the image store; or, with `drop_old`, an end to the keys
    that they had before."""

    range: str
    drop_old: bool = False


class ImageRoutes:
    """The handlers, over one head."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops

    def table(self) -> tuple[Route, ...]:
        """The routes."""
        view, operate, admin = Role.VIEWER, Role.OPERATOR, Role.ADMIN
        site, shown = Reach.SITE, Reach.SHOWN
        return (
            Route(
                "GET", "/v1/images", view, shown, "The image store", self._images, returns=ImageList
            ),
            Route(
                "POST",
                "/v1/images",
                admin,
                site,
                "Add an image from a file on the head",
                self._add,
                ImageRequest,
                returns=ImageAdded,
            ),
            Route(
                "DELETE",
                "/v1/images/{name}",
                admin,
                site,
                "Remove an image that no node wants",
                self._remove,
                returns=Nothing,
            ),
            Route(
                "POST",
                "/v1/images/roll",
                operate,
                Reach.RANGE,
                "Move nodes to an image, many in batches",
                self._roll,
                RollRequest,
                returns=ImageRoll,
            ),
            Route(
                "GET",
                "/v1/images/diff",
                view,
                Reach.NONE,
                "How two images differ: packages, files",
                self._diff,
                query=("a", "b"),
                returns=Difference,
            ),
            Route(
                "GET",
                "/v1/images/{name}/history",
                view,
                shown,
                "What a name points to and pointed to, newest first",
                self._history,
                returns=ImageHistory,
            ),
            Route(
                "GET",
                "/v1/images/{name}/sbom",
                view,
                Reach.NONE,
                "What an image is made of, as CycloneDX 1.5",
                self._sbom,
                returns=Sbom,
            ),
            Route(
                "POST",
                "/v1/images/keys",
                admin,
                Reach.RANGE,
                "Give nodes new keys of the image store",
                self._keys,
                KeysRequest,
                returns=KeysGiven,
            ),
            Route(
                "DELETE",
                "/v1/contents/unused",
                operate,
                site,
                "Delete contents that no name, node or roll needs",
                self._prune,
                returns=Deleted,
            ),
        )

    async def _images(self, request: web.Request, body: None) -> Any:
        caller, store = request[CALLER], self._ops.head.store
        return {
            "images": [
                image_view(
                    i, caller.only(store, self._ops.images.users(i)), brief=caller.looks_only
                )
                for i in self._ops.head.images.list()
            ]
        }

    async def _add(self, request: web.Request, body: ImageRequest) -> Any:
        image = await self._ops.images.add(
            Path(body.path), body.name, body.container(), request[CALLER].by()
        )
        return {"image": image_view(image, self._ops.images.users(image))}

    async def _remove(self, request: web.Request, body: None) -> Any:
        await self._ops.images.remove(request.match_info["name"], request[CALLER].by())
        return {}

    async def _roll(self, request: web.Request, body: RollRequest) -> Any:
        who = request[CALLER].by(body.by)
        if body.at_once:
            return {
                **await self._ops.rolls.at_once(body.range, body.image, body.replace, who),
                "rolls": [],
            }
        return await self._ops.rolls.change(body.range, body.image, body.replace, by=who)

    async def _diff(self, request: web.Request, body: None) -> Any:
        return await while_there(
            request,
            self._ops.images.difference(request.query.get("a", ""), request.query.get("b", "")),
        )

    async def _sbom(self, request: web.Request, body: None) -> Any:
        return await while_there(request, self._ops.images.sbom(request.match_info["name"]))

    async def _keys(self, request: web.Request, body: KeysRequest) -> Any:
        if body.drop_old:
            return {"nodes": [], "dropped": await self._ops.images.drop_old_keys(body.range)}
        return {"nodes": await self._ops.images.rotate_keys(body.range), "dropped": []}

    async def _prune(self, request: web.Request, body: None) -> Any:
        return {"deleted": await self._ops.images.prune(request[CALLER].by())}

    async def _history(self, request: web.Request, body: None) -> Any:
        found = self._ops.images.history(request.match_info["name"])
        for version in found["versions"]:
            version["used_by"] = request[CALLER].only(self._ops.head.store, version["used_by"])
        return found
