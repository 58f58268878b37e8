"""Speaks to the head's API, over its Unix socket or over TLS with a token; turns every failure into
a LayercakeError."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode

from layercake.client.target import Target
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Refused,
    Unreachable,
)

REQUEST_S = 60.0
_ELSEWHERE = 307
"""What a head answers that follows another one."""
_MOVES = 3
LONG_S = 3600.0  # an image of many GB is read and hashed before the head answers
_PIECE = 65536

Query = str | int | None
"""A parameter of a request; None and "" are left out."""


class _NotReached(Exception):
    """A head could not be connected to."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Moved(Exception):
    """A head sends us to another one."""

    def __init__(self, location: str) -> None:
        self.location = location


class Client:
    """Requests to one head, each on a connection of its own; to that of several that leads. All
    methods raise LayercakeError and nothing else."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._heads = target.each()

    def get(self, path: str, *, timeout: float = REQUEST_S, **query: Query) -> Any:
        """The JSON at a path. `timeout` is in seconds, for each piece of the answer."""
        with self._open("GET", path, query, timeout=timeout) as response:
            return _decode(response.read())

    def post(self, path: str, body: Mapping[str, Any], *, timeout: float = REQUEST_S) -> Any:
        """Posts JSON, returns JSON."""
        with self._open("POST", path, body=body, timeout=timeout) as response:
            return _decode(response.read())

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Sends changes as JSON, returns JSON."""
        with self._open("PATCH", path, body=body, timeout=REQUEST_S) as response:
            return _decode(response.read())

    def delete(self, path: str) -> Any:
        """Deletes, returns JSON."""
        with self._open("DELETE", path, timeout=REQUEST_S) as response:
            return _decode(response.read())

    def text(self, path: str, **query: Query) -> str:
        """The text at a path (a graph)."""
        with self._open("GET", path, query, timeout=REQUEST_S) as response:
            return response.read().decode(errors="replace")

    def stream(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **query: Query,
    ) -> Iterator[bytes]:
        """An answer as it comes, for as long as it takes. `timeout` is in seconds, for each piece
        of it."""
        with self._open(method, path, query, body=body, timeout=timeout) as response:
            while data := response.read1(_PIECE):
                yield data

    def acting(self) -> Target:
        """The head that answers: of several the one that leads."""
        with self._open("GET", "/v1/openapi.json", timeout=REQUEST_S):
            return self._target

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Query] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        timeout: float | None,
    ) -> Iterator[HTTPResponse]:
        with contextlib.ExitStack() as stack:
            yield self._from_one(
                stack, lambda: self._request(method, path, query, body=body, timeout=timeout)
            )

    def _from_one(
        self, stack: contextlib.ExitStack, ask: Callable[[], AbstractContextManager[HTTPResponse]]
    ) -> HTTPResponse:
        """The answer of the first head that can be reached, or of the one that this one sends us
        to. It is asked first from then on."""
        waiting = list(self._heads)
        moves = 0
        while True:
            self._target = waiting.pop(0)
            try:
                answer = stack.enter_context(ask())
                self._heads = [self._target, *(h for h in self._heads if h != self._target)]
                return answer
            except _NotReached as error:
                if not waiting:
                    raise unreachable(self._target, error.error) from error.error
            except _Moved as moved:
                moves += 1
                if moves > _MOVES:
                    raise OperationFailed("cannot find the head that leads: it changes") from None
                waiting.insert(0, self._target.moved(moved.location))

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Query] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        timeout: float | None,
    ) -> Iterator[HTTPResponse]:
        headers = {"Connection": "close", **self._target.headers()}
        content = None
        if body is not None:
            content = json.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            connection, prefix = self._connection()
            with contextlib.closing(connection):
                try:
                    connection.connect()
                except (OSError, UnicodeError) as error:  # nothing was asked yet
                    raise _NotReached(error) from error
                connection.sock.settimeout(timeout)
                connection.request(
                    method, prefix + path + query_string(query or {}), content, headers
                )
                response = connection.getresponse()
                if response.status == _ELSEWHERE and self._target.url:
                    raise _Moved(response.headers.get("Location", ""))
                if response.status >= 300:
                    raise error_from_response(response.status, response.read())
                yield response
        except TimeoutError as error:
            raise Unreachable(
                f"cannot reach the head at {self._target.where}: no answer in "
                f"{timeout or REQUEST_S:.0f} s",
                hint="what was asked may still happen; look with `layercake status`",
            ) from error
        except (
            OSError,
            HTTPException,
            UnicodeError,
        ) as error:  # the last for a host that no name can be
            raise unreachable(self._target, error) from error

    def _connection(self) -> tuple[HTTPConnection, str]:
        """A connection, not yet made, and what stands before each path."""
        if not self._target.url:
            return _UnixConnection(self._target.socket), ""
        url = self._target.parts()
        assert url.hostname is not None  # noqa: S101 (parts() has checked it)
        return HTTPSConnection(
            url.hostname, url.port, timeout=REQUEST_S, context=self._target.tls()
        ), url.path.rstrip("/")


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket; the host is not looked at."""

    def __init__(self, path: str) -> None:
        super().__init__("head", timeout=REQUEST_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def unreachable(target: Target, error: Exception) -> Unreachable:
    """The error for a head that cannot be spoken to."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    hint = "is `layercake serve` running?"
    if isinstance(error, PermissionError):
        hint = (
            "the socket is for root and the group socket_group of config.yaml; use sudo, or "
            "--url with a token"
        )
    elif isinstance(error, ssl.SSLCertVerificationError):
        reason = "its certificate is not trusted"
        hint = "give the head's CA with --ca"
    return Unreachable(f"cannot reach the head at {target.where}: {reason}", hint=hint)


def path_segment(name: str, hint: str = "give one name, and no range") -> str:
    """A name as one segment of a path. Raises InputError, with `hint`, for what no name can be: it
    must not reach another route."""
    if (
        not name
        or not all(c.isascii() and (c.isalnum() or c in "._:-") for c in name)
        or name in (".", "..")
    ):
        raise InputError(
            f"cannot use {name!r} as a name: letters, digits and . _ - : make a name", hint=hint
        )
    return name


def query_string(query: Mapping[str, Query]) -> str:
    """The parameters as the end of an address; "" without any."""
    parameters = {
        key: str(value) for key, value in query.items() if value is not None and value != ""
    }
    return "?" + urlencode(parameters) if parameters else ""


def error_from_response(status: int, content: bytes) -> LayercakeError:
    """The error that an answer of the head stands for."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or "error" not in body:
        return OperationFailed(
            f"cannot do this: the head answered {status}",
            hint="is this the head's API, of the same version?",
        )
    message = str(body["error"])
    hint = str(body.get("hint") or "")
    if body.get("problems"):
        return _inventory_errors(body["problems"])
    if status >= 500:
        return OperationFailed(message, hint=hint)
    if status in (401, 403, 409, 423):
        return Refused(message, hint=hint)
    return (NotFound if status == 404 else InputError)(message, hint=hint)


def _inventory_errors(problems: list[dict[str, Any]]) -> LayercakeError:
    from layercake.inventory.problems import InventoryErrors, Problem

    return InventoryErrors(
        str(problems[0].get("file", "")),
        [
            Problem(
                str(p.get("file", "")),
                int(p.get("line", 0)),
                int(p.get("column", 0)),
                str(p.get("message", "")),
                str(p.get("hint") or ""),
            )
            for p in problems
        ],
    )


def _decode(content: bytes) -> Any:
    # an answer of many MB has no garbage, and looking for it takes as long as reading it
    gc.disable()
    try:
        return json.loads(content)
    except ValueError:
        raise OperationFailed(
            "cannot read the head's answer: it is not JSON",
            hint="is it the head that listens there?",
        ) from None
    finally:
        gc.enable()


def lines_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of an answer that comes in pieces."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest
