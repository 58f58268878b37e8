"""Answers that are sent as they are made."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping

from aiohttp import web

NOT_KEPT = {"Cache-Control": "no-store"}


class ClientLeft(Exception):
    """Who asked has left, and takes no more of the answer. It is no ConnectionError: where the
    pieces come from would take that for its own connection's."""


async def send_pieces(
    request: web.Request,
    kind: str,
    pieces: AsyncIterator[bytes],
    headers: Mapping[str, str] = NOT_KEPT,
) -> web.StreamResponse:
    """Sends an answer of this content type piece by piece; what is returned can have more. Raises
    ClientLeft."""
    response = web.StreamResponse(headers={"Content-Type": kind, **headers})
    with _leaving():
        await response.prepare(request)
    async for piece in pieces:
        with _leaving():
            await response.write(piece)
    return response


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    try:
        yield
    except ConnectionError:
        raise ClientLeft from None
