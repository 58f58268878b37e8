"""The API of a head as its callers meet it: on a real Unix socket, or over TCP with tokens."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from layercake.api.server import Api
from layercake.head.access.tokens import FILE_NAME
from layercake.head.head import Head
from layercake.moduleapi.module import Role


@contextlib.asynccontextmanager
async def served(head: Head, *, local: bool) -> AsyncIterator[Any]:
    """A client of the API: a ClientSession on the socket, or a TestClient on loopback."""
    app: web.Application = Api(head)._app(local=local)
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
    head.tokens.adopt(head.data_dir / FILE_NAME, head.store.documents)


async def token(head: Head, name: str, role: str, *groups: str, may_exec: bool = False,
                seconds: float | None = None) -> dict[str, str]:
    """A new token, as the headers of a request."""
    expires = None if seconds is None else head.store.wall() + seconds
    async with head.desire.draft(revises=False) as draft:
        _, text = head.tokens.make(draft, name, Role[role.upper()], groups or None, may_exec=may_exec, by="a test", expires=expires)
    return {"Authorization": f"Bearer {text}"}
