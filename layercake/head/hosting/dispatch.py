"""Carries out what the engine decides: attempts go to the service that owns the mutation, their results come back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass

from layercake.head.agents.joining import Joining
from layercake.head.hosting.host import ModuleHost
from layercake.head.state.store import Record
from layercake.moduleapi import module_pb2 as pb

_NEEDS_TOKEN = ("boot-arm", "boot-wait")
_CLOSES_WINDOW = ("power-off", "power-reset")


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt that is under way in a service."""

    number: int
    node: str
    mutation: str
    attempt: int
    timeout: float


class Dispatcher:
    """The attempts under way, by number and by node."""

    def __init__(self, host: ModuleHost, joining: Joining, owners: Mapping[str, str]) -> None:
        self._host = host
        self._joining = joining
        self._owners = owners
        self._numbers = itertools.count(1)
        self._flights: dict[int, Flight] = {}
        self._by_node: dict[str, Flight] = {}

    def start(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """Sends an attempt to its service; one whose service is not attached goes out when it attaches."""
        service = self._owners.get(mutation, "")
        if mutation in _CLOSES_WINDOW:
            self._joining.close(record)
        if not service:
            return
        flight = Flight(next(self._numbers), record.node.id, mutation, attempt, timeout)
        self._flights[flight.number] = self._by_node[flight.node] = flight
        self._send(record, flight, service)

    def _send(self, record: Record, flight: Flight, service: str) -> None:
        params: dict[str, object] = {}
        if flight.mutation in _NEEDS_TOKEN:
            window = 3 * record.node.boot_timeout  # a boot that gets on may take that long
            params = {"token": self._joining.open(record, window), "window_s": window}
        message = pb.Mutate(
            id=flight.number, node=flight.node, mutation=flight.mutation, attempt=flight.attempt, timeout_s=flight.timeout,
            params_json=json.dumps(params).encode(),
        )
        self._host.send(service, pb.FromHead(mutate=message))

    def cancel(self, record: Record, mutation: str) -> None:
        """Ends an attempt. Its result, should it still come, is not listened to."""
        flight = self._by_node.get(record.node.id)
        if flight is not None and flight.mutation == mutation:
            self._drop(flight)
            self._host.send(self._owners[mutation], pb.FromHead(cancel=pb.Cancel(id=flight.number)))

    def resend(self, record: Record, service: str) -> None:
        """A service attached anew: it gets the attempt of this node that is under way, if it owns that."""
        flight = self._by_node.get(record.node.id)
        if flight is not None and self._owners.get(flight.mutation) == service:
            self._send(record, flight, service)

    def finished(self, number: int) -> Flight | None:
        """Takes an attempt off the list; None when nobody waits for it any more."""
        flight = self._flights.get(number)
        if flight is not None:
            self._drop(flight)
        return flight

    def _drop(self, flight: Flight) -> None:
        self._flights.pop(flight.number, None)
        if self._by_node.get(flight.node) is flight:
            del self._by_node[flight.node]
