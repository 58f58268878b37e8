"""A kernel's interfaces, addresses and routes, for tests of what keeps them: what a step does in
Linux 6.1, where it matters."""

from __future__ import annotations

import dataclasses
import itertools

from layercake.kraken.errors import OperationFailed
from minos.agent.network.steps import Seen, Step, Verb
from minos.agent.network.wire import MODES, RATES, Link


class FakeKernel:
    """`cards` are {name: MAC address}; the first one is up, with `address`, and a default route.
    `refuse` says what fails."""

    def __init__(
        self, cards: dict[str, str], address: str = "10.0.2.15/24", router: str = "10.0.2.2"
    ) -> None:
        self._numbers = itertools.count(2)
        self.links: dict[str, Link] = {}
        for name, mac in cards.items():
            self.links[name] = Link(next(self._numbers), name, "", mac, mac, False, True, 1500)
        first = next(iter(cards))
        self.change(first, up=True)
        self.addresses: dict[str, list[str]] = {first: [address]}
        self.routes = {(first, "0.0.0.0/0", router)}
        self.refuse: set[Verb] = set()
        self.done: list[Step] = []

    def change(self, name: str, **facts: object) -> None:
        """Something changes by itself, or by somebody else."""
        self.links[name] = dataclasses.replace(self.links[name], **facts)  # type: ignore[arg-type]

    def read_state(self) -> Seen:
        return Seen(
            dict(self.links),
            {name: tuple(found) for name, found in self.addresses.items()},
            set(self.routes),
        )

    def _named(self, index: int) -> str:
        return next(name for name, link in self.links.items() if link.index == index)

    def _off(self, name: str) -> None:
        self.change(name, up=False)
        self.routes = {route for route in self.routes if route[0] != name}
        self.addresses[name] = [a for a in self.addresses.get(name, []) if ":" not in a]

    def gone(self, name: str) -> None:
        """An interface goes away, and what is on it."""
        index = self.links.pop(name).index
        self.addresses.pop(name, None)
        self.routes = {route for route in self.routes if route[0] != name}
        for other, link in list(self.links.items()):
            if link.base == index:
                self.gone(other)
            elif link.master == index:
                self.change(other, master=0, up=False)

    def do(self, step: Step) -> None:
        self.done.append(step)
        if step.verb in self.refuse:
            raise OperationFailed(f"cannot {step}: Operation not permitted")
        name = "" if step.verb in (Verb.BOND, Verb.VLAN) else self._named(step.index)
        match step.verb:
            case Verb.RENAME:
                if self.links[name].up or step.what in self.links:
                    raise OperationFailed(f"cannot {step}: Device or resource busy")
                self.links[step.what] = dataclasses.replace(self.links.pop(name), name=step.what)
                self.addresses[step.what] = self.addresses.pop(name, [])
            case Verb.UP:
                self.change(name, up=True)
            case Verb.DOWN:
                self._off(name)
            case Verb.DELETE:
                self.gone(name)
            case Verb.BOND if step.bond is not None:
                self.links[step.what] = Link(
                    next(self._numbers),
                    step.what,
                    "bond",
                    step.by,
                    "",
                    False,
                    True,
                    1500,
                    mode=MODES[step.bond.mode],
                    miimon=step.bond.miimon,
                    rate=RATES[step.bond.rate],
                    aggregator=1,
                    partner=True,
                )
            case Verb.VLAN:
                base = self.links[self._named(step.index)]
                self.links[step.what] = Link(
                    next(self._numbers),
                    step.what,
                    "vlan",
                    base.mac,
                    "",
                    False,
                    True,
                    base.mtu,
                    base=base.index,
                    vlan=step.number,
                )
            case Verb.ENSLAVE:
                if self.links[name].up:
                    raise OperationFailed(f"cannot {step}: Operation not permitted")
                self.change(name, master=step.number, up=True, leg_up=True, leg_aggregator=1)
            case Verb.RELEASE:
                self.change(name, master=0)
                self._off(name)
            case Verb.MTU:
                self.change(name, mtu=step.number)
            case Verb.MIIMON:
                self.change(name, miimon=step.number)
            case Verb.PRIMARY:
                self.change(name, primary=step.number)
            case Verb.ADDRESS:
                self.addresses.setdefault(name, []).append(step.what)
            case Verb.NO_ADDRESS:
                self.addresses[name].remove(step.what)
            case Verb.ROUTE:
                if not self.links[name].up:
                    raise OperationFailed(f"cannot {step}: Network is down")
                self.routes = {r for r in self.routes if r[1] != step.what} | {
                    (name, step.what, step.by)
                }
            case Verb.NO_ROUTE:
                self.routes.remove((name, step.what, step.by))
