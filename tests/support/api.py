"""The API of a head as its callers meet it: on a real Unix socket, or over TCP with tokens."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler

from layercake.api.server import Api
from layercake.features.access.tokens import FILE_NAME, Tokens
from layercake.head.head import Head
from layercake.moduleapi.module import Role

_OF_MODULES = {"bmc", "place", "serial"}
"""What modules add to a node's view."""


def not_described(answer: Any, described: Any, place: str = "") -> list[str]:
    """The fields of an answer that its description does not have."""
    if isinstance(answer, dict) and isinstance(described, dict):
        return [
            found
            for key, value in answer.items()
            if key not in _OF_MODULES
            for found in (
                not_described(value, described[key], f"{place}.{key}")
                if key in described
                else [f"{place}.{key}"]
            )
        ]
    if isinstance(answer, list) and isinstance(described, list | tuple):
        return [
            found
            for a, d in zip(answer, described, strict=True)
            for found in not_described(a, d, f"{place}[]")
        ]
    return []


def in_full(value: Any) -> Any:
    """A decoded answer with all fields that its description has, also those that are as usual."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: in_full(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {key: in_full(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [in_full(one) for one in value]
    return value


def as_described(api: Api) -> Any:
    """Holds every answer against what the OpenAPI document says of it."""
    routes = {(r.operation.method, r.operation.path): r.operation for r in api.routes}

    @web.middleware
    async def look(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        resource = request.match_info.route.resource
        route = routes.get((request.method, resource.canonical)) if resource is not None else None
        if route is not None and response.status == 200 and isinstance(response, web.Response):
            kinds = route.kinds
            assert response.content_type in kinds, f"{route.path}: {response.content_type}"
            if route.returns is not None and isinstance(response.body, bytes):
                answer = json.loads(response.body)
                found = in_full(msgspec.convert(answer, route.returns))
                assert not not_described(answer, found), (
                    f"{route.path}: {not_described(answer, found)}"
                )
        return response

    return look


@contextlib.asynccontextmanager
async def served(head: Head, *, local: bool) -> AsyncIterator[Any]:
    """A client of the API: a ClientSession on the socket, or a TestClient on loopback."""
    api = head.api()
    app: web.Application = api.application(local=local)
    app.middlewares.append(as_described(api))
    if not local:
        async with TestClient(TestServer(app)) as client:
            yield client
        return
    folder = Path(tempfile.mkdtemp(prefix="lc"))  # a socket's path has 108 bytes at most
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    try:
        await runner.setup()
        await web.UnixSite(runner, str(folder / "s")).start()
        connector = aiohttp.UnixConnector(str(folder / "s"))
        async with aiohttp.ClientSession("http://head", connector=connector) as session:
            yield session
    finally:
        await runner.cleanup()
        shutil.rmtree(folder)


def adopt(head: Head) -> None:
    """Takes tokens.json in, as a start of the head does."""
    head.part(Tokens).adopt(head.data_dir / FILE_NAME, head.store.documents)


async def token(
    head: Head,
    name: str,
    role: str,
    *groups: str,
    may_exec: bool = False,
    seconds: float | None = None,
) -> dict[str, str]:
    """A new token, as the headers of a request."""
    expires = None if seconds is None else head.store.wall() + seconds
    async with head.desire.transaction(revises=False) as transaction:
        _, text = head.part(Tokens).make(
            transaction,
            name,
            Role[role.upper()],
            groups or None,
            may_exec=may_exec,
            by="a test",
            expires=expires,
        )
    return {"Authorization": f"Bearer {text}"}
