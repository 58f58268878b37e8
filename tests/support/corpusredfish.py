"""A Redfish service on loopback that answers by a file of tests/corpus/redfish, with the manners
that a test gives it."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

ROOT = "/redfish/v1"
CORPUS = Path(__file__).parents[1] / "corpus" / "redfish"
USER = "admin"
PASSWORD = "pw"


@dataclass
class CorpusRedfish:
    """`file` is the name of the corpus file. `slash`: "with" or "without" is the only form of paths
    that is answered, others are sent there by `redirect`; `absolute`: by a whole URL. `login` is
    what it takes: "basic", "session". `tag` makes the header ETag out of a number, `body_tag` the
    property; `takes` says whether an If-Match (None: none) is good. `refuses` are properties of a
    Boot that a PATCH may not have. `insertion` are the only properties that an insertion of a
    medium may have, and must have. `not_now` are statuses that come first, one for each request."""

    file: str = "classic"
    slash: str = ""
    redirect: int = 308
    absolute: bool = False
    elsewhere: str = ""
    login: str = "basic"
    challenge: bool = True
    tag: str = ""
    body_tag: str = ""
    takes: Callable[[str | None], bool] = lambda tag: True
    refuses: frozenset[str] = frozenset()
    insertion: frozenset[str] | None = None
    not_now: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    refused_logins: int = 0
    tokens: set[str] = field(default_factory=set)
    tags_sent: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.resources:
            self.resources = copy.deepcopy(json.loads((CORPUS / f"{self.file}.json").read_text()))

    @property
    def system(self) -> dict[str, Any]:
        """Its only system."""
        path = self.resources[f"{ROOT}/Systems"]["Members"][0]["@odata.id"]
        system: dict[str, Any] = self.resources[path]
        return system

    async def open(self) -> str:
        """Its URL, once it listens."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self.url

    async def close(self) -> None:
        """Ends it."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0)
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path_qs, body))
        if self.not_now:
            status, headers = self.not_now.pop(0)
            return web.Response(status=status, headers=headers, text="<html>not now</html>")
        if moved := self._moved(request.path):
            return web.Response(status=self.redirect, headers={"Location": moved})
        path = request.path.rstrip("/")
        key = f"{path}?{request.query_string}" if request.query_string else path
        if path == f"{ROOT}/SessionService/Sessions" and request.method == "POST":
            return self._new_session(body)
        if path != ROOT and not self._knows(request):
            self.refused_logins += 1
            challenge = {"WWW-Authenticate": 'Basic realm="BMC"'} if self.login == "basic" else {}
            return web.Response(status=401, headers=challenge if self.challenge else {})
        if request.method == "GET":
            return self._get(key)
        if request.method == "PATCH":
            return self._patch(request, key, body)
        return self._post(path, body)

    def _moved(self, path: str) -> str:
        if self.elsewhere:
            return self.elsewhere
        wanted = {"with": path.rstrip("/") + "/", "without": path.rstrip("/") or "/"}
        there = wanted.get(self.slash, path)
        return "" if there == path else (self.url if self.absolute else "") + there

    def _knows(self, request: web.Request) -> bool:
        if self.login == "session":
            return request.headers.get("X-Auth-Token") in self.tokens
        good = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return request.headers.get("Authorization") == f"Basic {good}"

    def _new_session(self, body: Any) -> web.Response:
        if body != {"UserName": USER, "Password": PASSWORD} or self.login != "session":
            self.refused_logins += 1
            return web.json_response({}, status=401)
        token = f"token-{len(self.requests)}"
        self.tokens.add(token)
        place = f"{ROOT}/SessionService/Sessions/{token}"
        return web.json_response(
            {"@odata.id": place}, status=201, headers={"X-Auth-Token": token, "Location": place}
        )

    def _get(self, key: str) -> web.Response:
        resource = self.resources.get(key)
        if isinstance(resource, dict) and "#status" in resource:
            return web.json_response({}, status=resource["#status"])
        if isinstance(resource, dict) and self.body_tag:
            resource = {**resource, "@odata.etag": self.body_tag}
        headers = {"ETag": self.tag} if self.tag else {}
        return web.json_response(
            resource if resource is not None else {},
            status=404 if resource is None else 200,
            headers=headers,
        )

    def _patch(self, request: web.Request, key: str, body: Any) -> web.Response:
        tag = request.headers.get("If-Match")
        self.tags_sent.append(tag)
        if not self.takes(tag):
            return web.json_response({}, status=428 if tag is None else 412)
        if self.refuses & set(body.get("Boot", {})):
            return web.json_response(
                {"error": {"message": "BootSourceOverrideMode is not writable"}}, status=400
            )
        self.resources[key].setdefault("Boot", {}).update(body.get("Boot", {}))
        return web.Response(status=204)

    def _post(self, path: str, body: Any) -> web.Response:
        if path.endswith("/ComputerSystem.Reset"):
            self.system["PowerState"] = "Off" if "Off" in body["ResetType"] else "On"
            return web.Response(status=204)
        if path.endswith("/VirtualMedia.InsertMedia"):
            good = self.insertion is None or frozenset(body) == self.insertion
            return web.json_response({}, status=200 if good else 400)
        return web.json_response({}, status=404)
