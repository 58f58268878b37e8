"""Speaks to the head's API, over its Unix socket or over TLS with a token; turns every failure into a LayercakeError."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from layercake.inventory.problems import InventoryErrors, Problem
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused, Unreachable
from layercake.moduleapi.secrets import SecretRef, resolve

DEFAULT_SOCKET = "/run/layercake/api.sock"
REQUEST_S = 60.0
LONG_S = 3600.0  # an image of many GB is read and hashed before the head answers


@dataclass(frozen=True, slots=True)
class Target:
    """Where the head is: `socket`, or `url` (https) with a token file and perhaps the head's CA."""

    socket: str = DEFAULT_SOCKET
    url: str = ""
    token_file: str = ""
    ca: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return self.url or self.socket


class Client:
    """One session with the head; an async context manager. All methods raise LayercakeError and nothing else."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._base = "http://head"  # the host is not looked at on a Unix socket
        self._headers: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        connector = self._tls() if self._target.url else aiohttp.UnixConnector(self._target.socket)
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    def _tls(self) -> aiohttp.TCPConnector:
        url = urlsplit(self._target.url)
        if url.scheme != "https" or not url.hostname:
            raise InputError(f"cannot use --url {self._target.url}: it must be https://HOST:PORT",
                             hint="a token is never sent in clear")
        if not self._target.token_file:
            raise InputError("cannot use --url: it needs --token-file", hint="or LAYERCAKE_TOKEN_FILE")
        self._base = self._target.url.rstrip("/")
        self._headers["Authorization"] = f"Bearer {resolve(SecretRef(file=self._target.token_file)).reveal()}"
        try:
            context = ssl.create_default_context(cafile=self._target.ca or None)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(f"cannot use --ca {self._target.ca}: {error.strerror or 'not a PEM certificate'}") from error
        return aiohttp.TCPConnector(ssl=context)

    async def get(self, path: str, **query: str | int | None) -> Any:
        """The JSON at a path."""
        return await self._json("GET", path, query=query)

    async def get_long(self, path: str, **query: str | int | None) -> Any:
        """The JSON at a path that takes the head long to find out."""
        return await self._json("GET", path, query=query, timeout=LONG_S)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout: float = REQUEST_S) -> Any:
        """Posts JSON, returns JSON."""
        return await self._json("POST", path, body=body, timeout=timeout)

    async def delete(self, path: str) -> Any:
        """Deletes, returns JSON."""
        return await self._json("DELETE", path)

    async def text(self, path: str, **query: str | int | None) -> str:
        """The text at a path (a graph)."""
        return (await self._request("GET", path, query=query)).decode(errors="replace")

    async def stream(self, method: str, path: str, *, body: Mapping[str, Any] | None = None,
                     **query: str | int | None) -> AsyncIterator[bytes]:
        """An answer as it comes, for as long as it takes."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S)
        try:
            async with self._open().request(method, self._base + path, params=_given(query), json=body, timeout=timeout,
                                            allow_redirects=False) as response:
                if response.status >= 300:
                    raise failure(response.status, await response.read())
                async for data in response.content.iter_any():
                    yield data
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def events(self, **query: str | int | None) -> AsyncIterator[list[dict[str, Any]]]:
        """Batches of events as they happen. First an empty one: what happens from then on is not missed. Ends when the
        head closes the stream; raises Unreachable when it cannot be opened."""
        try:
            async with self._open().ws_connect(self._base + "/v1/events/ws", params=_given(query), heartbeat=20.0) as socket:
                yield []
                async for message in socket:
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        return
                    yield _decode(message.data.encode())["events"]
        except aiohttp.WSServerHandshakeError as error:
            raise OperationFailed(f"cannot follow events: the head answered {error.status}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Client is used outside `async with`")
        return self._session

    async def _json(self, method: str, path: str, *, query: Mapping[str, str | int | None] | None = None,
                    body: Mapping[str, Any] | None = None, timeout: float = REQUEST_S) -> Any:
        return _decode(await self._request(method, path, query=query, body=body, timeout=timeout))

    async def _request(self, method: str, path: str, *, query: Mapping[str, str | int | None] | None = None,
                       body: Mapping[str, Any] | None = None, timeout: float = REQUEST_S) -> bytes:
        try:
            async with self._open().request(
                method, self._base + path, params=_given(query or {}), json=body, timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,
            ) as response:
                content = await response.read()
                if response.status >= 300:
                    raise failure(response.status, content)
                return content
        except TimeoutError as error:
            raise Unreachable(f"cannot reach the head at {self._target.where}: no answer in {timeout:.0f} s",
                              hint="what was asked may still happen; look with `layercake status`") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        inner = getattr(error, "os_error", error)
        reason = getattr(inner, "strerror", None) or str(inner) or type(error).__name__
        hint = "is `layercake serve` running?"
        if isinstance(inner, PermissionError):
            hint = "the socket belongs to the head's user; use sudo, or --url with a token"
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason, hint = "its certificate is not trusted", "give the head's CA with --ca"
        return Unreachable(f"cannot reach the head at {self._target.where}: {reason}", hint=hint)


def quoted(name: str) -> str:
    """A name as one segment of a path. Raises InputError for what no name can be: it must not reach another route."""
    if not name or not all(c.isascii() and (c.isalnum() or c in "._:-") for c in name) or name in (".", ".."):
        raise InputError(f"cannot use {name!r} as a name: letters, digits and . _ - : make a name")
    return name


def failure(status: int, content: bytes) -> LayercakeError:
    """The error that an answer of the head stands for."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or "error" not in body:
        return OperationFailed(f"cannot do this: the head answered {status}", hint="is this the head's API, of the same version?")
    message, hint = str(body["error"]), str(body.get("hint") or "")
    problems = body.get("problems") or []
    if problems:
        return InventoryErrors(str(problems[0].get("file", "")), [
            Problem(str(p.get("file", "")), int(p.get("line", 0)), int(p.get("column", 0)), str(p.get("message", "")),
                    str(p.get("hint") or "")) for p in problems])
    if status in (401, 403, 409, 423):
        return Refused(message, hint=hint)
    return InputError(message, hint=hint) if status < 500 else OperationFailed(message, hint=hint)


def _decode(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        raise OperationFailed("cannot read the head's answer: it is not JSON", hint="is it the head that listens there?") from None


def _given(query: Mapping[str, str | int | None]) -> dict[str, str]:
    return {key: str(value) for key, value in query.items() if value is not None and value != ""}

