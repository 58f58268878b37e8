"""Answers that are sent as they are made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from aiohttp import web

NOT_KEPT = {"Cache-Control": "no-store"}


async def send_pieces(
    request: web.Request,
    kind: str,
    pieces: AsyncIterator[bytes],
    headers: Mapping[str, str] = NOT_KEPT,
) -> web.StreamResponse:
    """Sends an answer of this content type piece by piece; what is returned can have more."""
    response = web.StreamResponse(headers={"Content-Type": kind, **headers})
    await response.prepare(request)
    async for piece in pieces:
        await response.write(piece)
    return response
