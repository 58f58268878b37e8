"""A foreign client for a node's API: plain http.client over TLS, with the name and credential that
a test wants."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any


class NodeClient(http.client.HTTPSConnection):
    """One connection. `name` is the name that the certificate must be for."""

    def __init__(self, port: int, authority: Path, name: str, credential: str) -> None:
        self._checked = ssl.create_default_context(cafile=str(authority))
        super().__init__("127.0.0.1", port, context=self._checked, timeout=20)
        self._name = name
        self.fields = {"Authorization": credential} if credential else {}

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = self._checked.wrap_socket(plain, server_hostname=self._name)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """(status, JSON, lines of JSON, or text)."""
        answer = self.open(method, path, body)
        data = answer.read()
        kind = answer.headers["Content-Type"]
        self.close()
        if kind == "application/json":
            return answer.status, json.loads(data)
        if kind == "application/x-ndjson":
            return answer.status, [json.loads(line) for line in data.splitlines()]
        return answer.status, data.decode()

    def open(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        """The answer, to be read as it comes."""
        self.request(method, path, None if body is None else json.dumps(body), self.fields)
        return self.getresponse()
