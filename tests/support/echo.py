"""A module that answers what it is asked; run by the module manager as any other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.kraken.errors import OperationFailed
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.mutation import mutation
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi import client
from layercake.moduleapi.module import Module, NoRequest, Role, Site, call
from layercake.moduleapi.service import Link, MutationRequest, Service

MUTATED = EventKind("echo.mutated", Severity.INFO, "A mutation was asked for.")


class EchoSettings(msgspec.Struct):
    """Whether to refuse to start."""

    fail: bool = False


@mutation("echo-fail", changes={"echo": (UNKNOWN, "FAILED")})
async def fail(service: EchoService, request: MutationRequest) -> Mapping[str, str]:
    """Fails."""
    raise OperationFailed("cannot do it: told to fail", hint="ask for something else")


@mutation("echo-bug", changes={"echo": (UNKNOWN, "BUG")})
async def bug(service: EchoService, request: MutationRequest) -> Mapping[str, str]:
    """Has a bug."""
    raise RuntimeError("secret detail")


@mutation("echo-set", changes={"echo": (UNKNOWN, "SET")})
async def set_(service: EchoService, request: MutationRequest) -> Mapping[str, str]:
    """Says its parameters back."""
    service.link.event(request.node, MUTATED, request.mutation, data={"attempt": request.attempt})
    return {str(k): str(v) for k, v in request.params.items()}


@call("echo.dump", role=Role.VIEWER, request=NoRequest)
async def dump(service: EchoService, request: NoRequest) -> dict[str, Any]:
    """Everything that it was told."""
    cookie = os.environ.get(client.COOKIE_VARIABLE)
    return {
        "pid": os.getpid(),
        "nodes": service.nodes,
        "states": service.states,
        "networks": service.networks,
        "cookie": cookie,
    }


MODULE = Module(
    name="echo",
    doc="Says back what it was told.",
    settings=EchoSettings,
    variables=(Variable("echo", (UNKNOWN, "SET", "FAILED", "BUG")),),
    mutations=(fail, bug, set_),
    calls=(dump,),
    events=(MUTATED,),
    networks=True,
    service="tests.support.echo:EchoService",
)


class EchoService(Service):
    """Says back what it was told."""

    module = MODULE

    async def start(self, link: Link, site: Site, settings: EchoSettings) -> None:
        """Refuses to start when the settings say so."""
        if settings.fail:
            raise OperationFailed("cannot start: told to fail")
        self.link = link
        self.nodes: dict[str, Any] = {}
        self.states: dict[str, Any] = {}
        self.networks: dict[str, Any] = {}

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Keeps the record."""
        self.nodes[node] = dict(record)

    async def node_removed(self, node: str) -> None:
        """Drops the record."""
        self.nodes.pop(node, None)

    async def network_changed(self, name: str, network: Mapping[str, Any]) -> None:
        """Keeps the network."""
        self.networks[name] = dict(network)

    async def network_removed(self, name: str) -> None:
        """Drops the network."""
        self.networks.pop(name, None)

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """Keeps the state."""
        self.states[node] = dict(values)
