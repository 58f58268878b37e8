"""Carries out what the engine decides: attempts go to the module that owns the mutation, their
results come back."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

from layercake.agents.joining import Joining
from layercake.fleet.store import Record
from layercake.fleet.table import Table
from layercake.kraken.errors import Refused
from layercake.moduleapi import module_pb2 as pb
from layercake.modules.boot_timeouts import BootTimeouts
from layercake.modules.host import ModuleHost

WINDOW_TIMES = 3.0
"""A boot window is open for so many times the longest step that a node joins by: a boot that gets
on may take that long."""


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt that is under way in a module."""

    number: int
    node: str
    mutation: str
    attempt: int
    timeout: float


class Dispatcher:
    """The attempts under way, by number and by node."""

    def __init__(
        self, host: ModuleHost, joining: Joining, table: Table, patience: BootTimeouts
    ) -> None:
        self._patience = patience
        self._host = host
        self._joining = joining
        self._table = table
        self._numbers = itertools.count(1)
        self.flights: dict[int, Flight] = {}
        """The attempts under way, by their numbers."""
        self.by_node: dict[str, Flight] = {}
        """The newest of each node."""

    def start(self, record: Record, name: str, attempt: int, timeout: float) -> None:
        """Sends an attempt to its module; one whose module is not attached goes out when it
        attaches."""
        module = self._table.owner.get(name, "")
        mutation = record.planner.mutation(name)
        if mutation.cuts_power:  # a token that it was given is worth nothing from then on
            self._joining.close(record)
        if not module:
            return  # the head waits for what it will see, or the node does it itself
        flight = Flight(next(self._numbers), record.node.id, name, attempt, timeout)
        self.flights[flight.number] = self.by_node[flight.node] = flight
        self._send(record, flight, module)

    def _send(self, record: Record, flight: Flight, module: str) -> None:
        params: dict[str, object] = {"up": record.care.up}
        if record.care.order is not None and record.care.order.soft:
            params["gentle"] = True
        if record.planner.mutation(flight.mutation).joins:
            window = WINDOW_TIMES * max(m.timeout for m in record.planner.mutations if m.joins)
            params |= self._patience.params(record, flight.mutation, flight.attempt)
            params |= {"token": self._joining.open(record, window), "window_s": window}
        message = pb.Mutate(
            id=flight.number,
            node=flight.node,
            mutation=flight.mutation,
            attempt=flight.attempt,
            timeout_s=flight.timeout,
            params_json=json.dumps(params).encode(),
        )
        self._host.send(module, pb.FromHead(mutate=message))

    def cancel(self, record: Record, mutation: str) -> None:
        """Ends an attempt. Its result, should it still come, is not listened to."""
        flight = self.by_node.get(record.node.id)
        if flight is not None and flight.mutation == mutation:
            self._drop(flight)
            self._host.send(
                self._table.owner[mutation], pb.FromHead(cancel=pb.Cancel(id=flight.number))
            )

    def under_way(self, module: str) -> dict[str, Flight]:
        """The attempts that are a module's, by node."""
        return {
            node: flight
            for node, flight in self.by_node.items()
            if self._table.owner.get(flight.mutation) == module
        }

    def resend(self, record: Record, module: str) -> None:
        """A module attached anew: it gets the attempt of this node that is under way, if it owns
        that."""
        flight = self.by_node.get(record.node.id)
        active = record.machine.active
        if flight is None or self._table.owner.get(flight.mutation) != module:
            return
        if active is not None and (active.mutation, active.attempt) == (
            flight.mutation,
            flight.attempt,
        ):
            self._send(record, flight, module)
        else:  # what it is for was seen meanwhile
            self._drop(flight)

    def finished(self, module: str, number: int) -> Flight | None:
        """Takes an attempt off the list; None when nobody waits for it any more. Raises Refused if
        it is another module's."""
        flight = self.flights.get(number)
        if flight is not None:
            if self._table.owner.get(flight.mutation) != module:
                raise Refused(f"the result of {flight.mutation} is not module {module}'s to say")
            self._drop(flight)
        return flight

    def _drop(self, flight: Flight) -> None:
        self.flights.pop(flight.number, None)
        if self.by_node.get(flight.node) is flight:
            del self.by_node[flight.node]
