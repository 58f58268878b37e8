"""Requests to a simulation's head, over its Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from layercake.kraken.errors import OperationFailed

LIMIT_S = 300.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Api:
    """The head's API, for its administrator."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON that a request is answered with. Raises OSError if no head is there,
        OperationFailed if it refuses."""
        connection = _Connection(self._path)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:
            raise OperationFailed(f"cannot ask the head: {error!r}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise OperationFailed(
                f"cannot {method} {path}: {answer.status} {text[:2000].decode(errors='replace')}"
            )
        return json.loads(text)
