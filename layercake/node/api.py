"""The node's own API: containers, their logs, commands inside, attach and mount objects. Only the
head is served.

    GET  /v1/openapi.json, /v1/status, /v1/containers, /v1/containers/NAME
    GET  /v1/containers/NAME/log?lines=200&follow=1       text as it comes
    POST /v1/exec {"command": [..], "container": "", "timeout_s": 60}
                                                          lines {"out"|"err": base64}, {"exit": n}
    POST /v1/bmc {"user": "", "password": "", "address": "", "mask": "", "gateway": "",
                  "apply": false}
    GET, POST /imageapi/v1/attach, .../mount, .../container
    GET, DELETE .../attach/ID, .../mount/ID, .../container/ID
    POST /imageapi/v1/container/ID/state {"state": "running"|"exited"}
    GET /imageapi/v1/container/ID/log
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imageapi.node.container import follow
from imageapi.node.container.execute import ExecContext
from imageapi.node.imageset.imageset import ImageSet
from imageapi.node.imageset.table import LIVE
from imageapi.node.objects.objects import USER
from imageapi.spec.fields import command_words
from layercake import __version__
from layercake.base.text import whole_number
from layercake.kraken.errors import InputError
from minos.agent.http.server import LINES, TEXT, BadRequest, Reply, Request

EXEC_MAX = 3600.0
Answer = Callable[[Request, Mapping[str, str]], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: a path with {names}, and what it does in a sentence."""

    method: str
    path: str
    summary: str
    answer: Answer
    body: Mapping[str, Any] | None = None

    def match(self, path: str) -> Mapping[str, str] | None:
        """The path's names, None if it is another."""
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path))
        matched = re.fullmatch(pattern, path)
        return matched.groupdict() if matched else None


def _object(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties}


_EXEC = _object(
    command={"type": "array", "items": {"type": "string"}},
    container={"type": "string"},
    timeout_s={"type": "number"},
)
_BMC = _object(
    **{key: {"type": "string"} for key in ("user", "password", "address", "mask", "gateway")},
    apply={"type": "boolean"},
)


def json_reply(value: object, status: int = 200) -> Reply:
    """An answer in JSON."""
    return Reply(json.dumps(value).encode(), status)


class Api:
    """The routes over a node's images; `bmc` sets up the BMC of a machine that is ours
    (layercake.node.bmc)."""

    def __init__(
        self,
        images: ImageSet,
        state: Callable[[], Mapping[str, Any]],
        bmc: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._images = images
        self._bmc = bmc
        self._objects = images.objects
        self._state = state
        self.routes = (
            Route("GET", "/v1/openapi.json", "This description", self._openapi),
            Route("GET", "/v1/status", "The agent", self._status),
            Route(
                "GET",
                "/v1/containers",
                "All containers with their state, health and last error",
                self._containers,
            ),
            Route("GET", "/v1/containers/{name}", "One container", self._container),
            Route(
                "GET",
                "/v1/containers/{name}/log",
                "A container's output; with follow=1 as it comes",
                self._log,
            ),
            Route(
                "POST", "/v1/exec", "Run a command on the node or in a container", self._exec, _EXEC
            ),
            Route(
                "POST",
                "/v1/bmc",
                "Say in what the BMC is not as wanted, or set it up",
                self._set_up_bmc,
                _BMC,
            ),
            *(route for kind in ("attach", "mount") for route in self._object_routes(kind)),
            *self._container_routes(),
        )

    def _container_routes(self) -> tuple[Route, ...]:
        base = "/imageapi/v1/container"
        containers = self._images.containers

        def delete(request: Request, names: Mapping[str, str]) -> Reply:
            containers.delete(names["id"])
            return json_reply({})

        return (
            Route(
                "GET",
                base,
                "All container objects",
                lambda request, names: json_reply({"objects": containers.views()}),
            ),
            Route(
                "POST",
                base,
                "Make a container on a mount",
                lambda request, names: json_reply(containers.create(_json(request)), 201),
                _object(
                    name={"type": "string"},
                    mount={"type": "object"},
                    state={"enum": ["created", "running"]},
                ),
            ),
            Route(
                "GET",
                base + "/{id}",
                "One container object",
                lambda request, names: json_reply(containers.view(names["id"])),
            ),
            Route("DELETE", base + "/{id}", "Stop a container object and take it away", delete),
            Route(
                "POST",
                base + "/{id}/state",
                "Start or stop a container object",
                lambda request, names: json_reply(
                    containers.set_state(names["id"], _json(request).get("state"))
                ),
                _object(state={"enum": ["running", "exited"]}),
            ),
            Route(
                "GET",
                base + "/{id}/log",
                "A container object's output",
                lambda request, names: Reply(containers.log(names["id"], 1000).encode(), kind=TEXT),
            ),
        )

    def _object_routes(self, kind: str) -> tuple[Route, ...]:
        base = f"/imageapi/v1/{kind}"

        def every(request: Request, names: Mapping[str, str]) -> Reply:
            return json_reply({"objects": [o for o in self._objects.views() if o["type"] == kind]})

        def one(request: Request, names: Mapping[str, str]) -> Reply:
            return json_reply(self._objects.view(names["id"]))

        def create(request: Request, names: Mapping[str, str]) -> Reply:
            return json_reply(
                self._objects.view(self._objects.acquire(kind, _json(request), USER)), 201
            )

        def delete(request: Request, names: Mapping[str, str]) -> Reply:
            self._objects.release(names["id"], USER)
            return json_reply({})

        return (
            Route("GET", base, f"All {kind} objects", every),
            Route("GET", base + "/{id}", f"One {kind} object", one),
            Route("POST", base, f"Make a {kind} object, or hold an equal one", create, _object()),
            Route("DELETE", base + "/{id}", f"Let go of a {kind} object", delete),
        )

    def handle(self, request: Request) -> Reply:
        """Answers a request (minos.agent.http.server.Handle)."""
        known = False
        for route in self.routes:
            names = route.match(request.path)
            if names is not None:
                known = True
                if route.method == request.method:
                    return route.answer(request, names)
        raise BadRequest(
            405 if known else 404,
            "there is no such operation" if known else "there is no such path",
        )

    def _openapi(self, request: Request, names: Mapping[str, str]) -> Reply:
        paths: dict[str, dict[str, Any]] = {}
        for route in self.routes:
            operation: dict[str, Any] = {
                "summary": route.summary,
                "responses": {
                    "200": {"description": "done"},
                    "default": {"description": "an error"},
                },
                "parameters": [
                    {"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
                    for n in re.findall(r"{(\w+)}", route.path)
                ],
            }
            if route.body is not None:
                operation["requestBody"] = {
                    "required": True,
                    "content": {"application/json": {"schema": route.body}},
                }
            paths.setdefault(route.path, {})[route.method.lower()] = operation
        return json_reply(
            {
                "openapi": "3.1.0",
                "info": {"title": "Layercake node", "version": __version__},
                "paths": paths,
                "components": {"securitySchemes": {"head": {"type": "http", "scheme": "bearer"}}},
                "security": [{"head": []}],
            }
        )

    def _status(self, request: Request, names: Mapping[str, str]) -> Reply:
        return json_reply(
            {"version": __version__, **self._state(), "containers": self._images.views()}
        )

    def _containers(self, request: Request, names: Mapping[str, str]) -> Reply:
        return json_reply({"containers": self._images.views()})

    def _container(self, request: Request, names: Mapping[str, str]) -> Reply:
        view = next((v for v in self._images.views() if v["name"] == names["name"]), None)
        if view is None:
            self._images.newest(names["name"])  # raises, and says what there is
        return json_reply(view)

    # ---- logs and commands
    # -----

    def _log(self, request: Request, names: Mapping[str, str]) -> Reply:
        name = names["name"]
        lines = request.query.get("lines", "200")
        if whole_number(lines, 10_000) is None:
            raise InputError(f"cannot use lines={lines[:20]!r}: expected 0 to 10000")
        instance = self._images.newest(name)
        if request.query.get("follow") != "1":
            return Reply(self._images.logs(name, int(lines)).encode(), kind=TEXT)
        if instance.spec.container.systemd and instance.phase in LIVE:
            return Reply(
                follow.journal(self._images.place(name), int(lines), request.gone), kind=TEXT
            )

        def there() -> bool:
            return any(i.id == instance.id for i in self._images.instances())

        return Reply(
            follow.log(self._images.runtime.log(instance.id), int(lines), there, request.gone),
            kind=TEXT,
        )

    def _exec(self, request: Request, names: Mapping[str, str]) -> Reply:
        body = _json(request)
        command = command_words(body.get("command"), "command")
        container = body.get("container") or ""
        timeout = body.get("timeout_s", 60)
        if (
            isinstance(timeout, bool)
            or not isinstance(timeout, int | float)
            or not 0 < timeout <= EXEC_MAX
        ):
            raise InputError(
                f"cannot use timeout_s {str(timeout)[:20]}: expected up to {EXEC_MAX:.0f} seconds"
            )
        place = self._images.place(str(container)) if container else ExecContext()
        return Reply(_lines(follow.run(place, command, timeout, request.gone)), kind=LINES)

    def _set_up_bmc(self, request: Request, names: Mapping[str, str]) -> Reply:
        if self._bmc is None:
            raise InputError(
                "cannot set up the BMC: this agent runs beside a system that is not ours"
            )
        return json_reply(self._bmc(_json(request)))


def _lines(outputs: Iterator[follow.Output]) -> Iterator[bytes]:
    try:
        for kind, data in outputs:
            if kind == "exit":
                value: dict[str, Any] = {"exit": int(data)}
            elif kind == "timeout":
                value = {"error": "it took too long and was killed"}
            else:
                value = {kind: base64.b64encode(data).decode()}
            yield json.dumps(value).encode() + b"\n"
    finally:
        close = getattr(outputs, "close", None)
        if close:
            close()


def _json(request: Request) -> Mapping[str, Any]:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise BadRequest(400, "the body is not JSON that can be read") from None
    if not isinstance(body, dict):
        raise BadRequest(400, "the body is not an object")
    return body
