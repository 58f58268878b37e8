"""The routes of images: the store, what names pointed to, what is different between two, what
nobody needs, rolling at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from aiohttp import web

from imageapi.store.store import ImageStore
from layercake.api.answers import Nothing
from layercake.api.route import CALLER, Reach, route, while_there
from layercake.features.images.answers import (
    Deleted,
    Difference,
    ImageAdded,
    ImageHistory,
    ImageList,
    ImageRoll,
    KeysGiven,
    Sbom,
)
from layercake.features.images.operations import Images
from layercake.features.images.views import image_view
from layercake.features.rolls.operations import RollRequests
from layercake.fleet.store import Store
from layercake.kraken.errors import InputError
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
    head_api: bool | None = None

    def container(self) -> dict[str, Any]:
        """The container part."""
        return {k: v for k, v in msgspec.to_builtins(self).items() if k not in ("path", "name")}


class RollRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An image to roll to, in the place of `replace` or of all images of the nodes. Many running
    nodes go in batches, by rolls that the answer names, unless `at_once` is said. `by` says who
    asks. `at`: all go in batches, by rolls that begin then (RFC 3339, with a zone)."""

    range: str
    image: str
    replace: str | None = None
    at_once: bool = False
    by: str = ""
    at: str = ""


class KeysRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New keys for the nodes' access to the image store; or, with `drop_old`, an end to the keys
    that they had before."""

    range: str
    drop_old: bool = False


class ImageRoutes:
    """The image store."""

    def __init__(self, images: Images, rolls: RollRequests, kept: ImageStore, store: Store) -> None:
        self._images = images
        self._rolls = rolls
        self._kept = kept
        self._store = store

    @route("GET", "/v1/images", Role.VIEWER, Reach.SHOWN, returns=ImageList)
    async def images(self, request: web.Request, body: None) -> Any:
        """The image store."""
        caller = request[CALLER]
        store = self._store
        return {
            "images": [
                image_view(i, caller.only(store, self._images.users(i)), brief=caller.looks_only)
                for i in self._kept.list()
            ]
        }

    @route("POST", "/v1/images", Role.ADMIN, Reach.SITE, body=ImageRequest, returns=ImageAdded)
    async def add(self, request: web.Request, body: ImageRequest) -> Any:
        """Add an image from a file on the head."""
        image = await self._images.add(
            Path(body.path), body.name, body.container(), request[CALLER].by()
        )
        return {"image": image_view(image, self._images.users(image))}

    @route("DELETE", "/v1/images/{name}", Role.ADMIN, Reach.SITE, returns=Nothing)
    async def remove(self, request: web.Request, body: None) -> Any:
        """Remove an image that no node wants."""
        await self._images.remove(request.match_info["name"], request[CALLER].by())
        return {}

    @route(
        "POST", "/v1/images/roll", Role.OPERATOR, Reach.RANGE, body=RollRequest, returns=ImageRoll
    )
    async def roll(self, request: web.Request, body: RollRequest) -> Any:
        """Move nodes to an image, many in batches."""
        self._rolls.permit(body.image, request[CALLER].groups)
        who = request[CALLER].by(body.by)
        if body.at_once and body.at:
            raise InputError(
                "cannot roll at once and at a time", hint="leave one of at_once and at out"
            )
        if body.at_once:
            return {
                **await self._rolls.at_once(body.range, body.image, body.replace, who),
                "rolls": [],
            }
        return await self._rolls.change(body.range, body.image, body.replace, by=who, at=body.at)

    @route("GET", "/v1/images/diff", Role.VIEWER, Reach.NONE, query=("a", "b"), returns=Difference)
    async def diff(self, request: web.Request, body: None) -> Any:
        """How two images differ: packages, files."""
        return await while_there(
            request, self._images.difference(request.query.get("a", ""), request.query.get("b", ""))
        )

    @route("GET", "/v1/images/{name}/sbom", Role.VIEWER, Reach.NONE, returns=Sbom)
    async def sbom(self, request: web.Request, body: None) -> Any:
        """What an image is made of, as CycloneDX 1.5."""
        return await while_there(request, self._images.sbom(request.match_info["name"]))

    @route("POST", "/v1/images/keys", Role.ADMIN, Reach.RANGE, body=KeysRequest, returns=KeysGiven)
    async def keys(self, request: web.Request, body: KeysRequest) -> Any:
        """Give nodes new keys of the image store."""
        if body.drop_old:
            return {"nodes": [], "dropped": await self._images.drop_old_keys(body.range)}
        return {"nodes": await self._images.rotate_keys(body.range), "dropped": []}

    @route("DELETE", "/v1/contents/unused", Role.OPERATOR, Reach.SITE, returns=Deleted)
    async def prune(self, request: web.Request, body: None) -> Any:
        """Delete contents that no name, node or roll needs."""
        return {"deleted": await self._images.prune(request[CALLER].by())}

    @route("GET", "/v1/images/{name}/history", Role.VIEWER, Reach.SHOWN, returns=ImageHistory)
    async def history(self, request: web.Request, body: None) -> Any:
        """What a name points to and pointed to, newest first."""
        found = self._images.history(request.match_info["name"])
        for version in found["versions"]:
            version["used_by"] = request[CALLER].only(self._store, version["used_by"])
        return found
