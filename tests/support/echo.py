"""A service that answers what it is asked; run by the service manager as `python -m tests.support.echo`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from layercake.kraken.errors import OperationFailed
from layercake.moduleapi import client
from layercake.moduleapi.service import Link, MutationRequest, Service


class EchoService(Service):
    """Says back what it was told."""

    name = "tests.support.echo"

    async def start(self, link: Link, settings: Mapping[str, Any]) -> None:
        """Refuses to start when the settings say so."""
        if settings.get("fail"):
            raise OperationFailed("cannot start: told to fail")
        self.link = link
        self.nodes: dict[str, Any] = {}
        self.states: dict[str, Any] = {}

    async def stop(self) -> None:
        """Nothing to close."""

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Keeps the record."""
        self.nodes[node] = dict(record)

    async def node_removed(self, node: str) -> None:
        """Drops the record."""
        self.nodes.pop(node, None)

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """Keeps the state."""
        self.states[node] = dict(values)

    async def mutate(self, request: MutationRequest) -> Mapping[str, str]:
        """Fails a mutation called fail; otherwise reports its parameters as discovered."""
        if request.mutation == "fail":
            raise OperationFailed("cannot do it: told to fail", hint="ask for something else")
        if request.mutation == "bug":
            raise RuntimeError("secret detail")
        self.link.event(request.node, "echo.mutated", request.mutation, data={"attempt": request.attempt})
        return {str(k): str(v) for k, v in request.params.items()}

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Answers what it knows."""
        if method == "dump":
            cookie = os.environ.get(client.COOKIE_VARIABLE)
            return {"pid": os.getpid(), "nodes": self.nodes, "states": self.states, "cookie": cookie}
        raise KeyError(method)


if __name__ == "__main__":
    client.main(EchoService)
