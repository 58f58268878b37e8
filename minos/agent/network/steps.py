"""What leads from the interfaces that there are to those that are wanted: pure functions.

One stage at a time: what a later one builds on is looked at again before. A step that the kernel
refused is left out, so that it holds up nothing that does not need it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from minos.agent.network.wanted import Bond, Boot, Interface, Interfaces, holder
from minos.agent.network.wire import MODES, RATES, Link

_OVER = ("bond", "vlan", "bridge", "macvlan")
"""Kinds that have the address of another card as their own."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is: interfaces by their names, their addresses (those that stay), and the routes
    by routers (interface, target, router)."""

    links: Mapping[str, Link]
    addresses: Mapping[str, Collection[str]] = field(default_factory=dict)
    routes: Collection[tuple[str, str, str]] = ()


class Verb(enum.Enum):
    """What is done to an interface."""

    RENAME = "call it"
    DOWN = "switch it off"
    UP = "switch it on"
    DELETE = "take it away"
    BOND = "make the bond"
    MIIMON = "set how often its legs are looked at, in ms, to"
    PRIMARY = "prefer its leg"
    ENSLAVE = "make it a leg of"
    RELEASE = "take it out of its bond"
    VLAN = "make the VLAN"
    MTU = "set its MTU to"
    ADDRESS = "give it the address"
    NO_ADDRESS = "take from it the address"
    ROUTE = "route by it"
    NO_ROUTE = "no longer route by it"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to ask of the kernel, about the interface that the inventory calls `on`. `index` is
    whose it is, or of a new VLAN what it is on; `what` is a name, an address or a target, `by` a
    router or a MAC address, `number` an index, an MTU or a VLAN."""

    on: str
    verb: Verb
    index: int = 0
    what: str = ""
    by: str = ""
    number: int = 0
    bond: Bond | None = None

    def __str__(self) -> str:
        more = self.what or ("" if self.verb is Verb.BOND or not self.number else str(self.number))
        via = f" via {self.by}" if self.verb in (Verb.ROUTE, Verb.NO_ROUTE) else ""
        return f"{self.verb.value}{f' {more}' if more else ''}{via}"


def card(mac: str, seen: Seen) -> Link | None:
    """The card that its maker gave this address to. One that does not say its maker's is known by
    that of now."""
    links = seen.links.values()
    return next(
        (link for link in links if link.permanent == mac and link.kind not in _OVER), None
    ) or next(
        (
            link
            for link in links
            if not link.permanent and link.mac == mac and link.kind not in _OVER
        ),
        None,
    )


def link_of(one: Interface, seen: Seen) -> Link | None:
    """What there is of a wanted interface; None if it is not there, or is of another kind."""
    if one.mac:
        return card(one.mac, seen)
    link = seen.links.get(one.name)
    return link if link is not None and link.kind == one.kind else None


class Plan:
    """The steps towards `want`, from what is `seen`. `before` is what was wanted until now: what is
    of that and is wanted no longer is taken away; all else that others have made stays."""

    def __init__(self, want: Interfaces, seen: Seen, before: Interfaces, boot: Boot) -> None:
        self._want = want
        self._seen = seen
        self._before = before
        self._boot = boot
        self._links = {
            name: link for name, one in want.items() if (link := link_of(one, seen)) is not None
        }
        self._legs = {
            leg: name for name, one in want.items() if one.bond is not None for leg in one.bond.legs
        }

    def next(self, failed: Collection[Step]) -> list[Step]:
        """The steps of the first stage that has any; [] when all is as wanted, as far as it can
        be."""
        in_vain = {step.on for step in failed if step.verb in (Verb.RENAME, Verb.ENSLAVE)}
        for stage in (
            self._stale,
            self._names,
            self._bonds,
            self._prepared,
            self._enslaved,
            self._vlans,
            self._sizes,
            self._on,
            self._addressed,
            self._moved,
            self._routed,
        ):
            if possible := [
                step
                for step in stage()
                if step not in failed and not (step.verb is Verb.DOWN and step.on in in_vain)
            ]:
                return possible
        return []

    def lacking(self) -> dict[str, str]:
        """{interface: what it needs and is not there}."""
        reasons: dict[str, str] = {}
        for name, one in self._want.items():
            if one.mac and name not in self._links:
                reasons[name] = f"there is no card {one.mac}"
            elif one.vlan is not None and one.vlan[1] not in self._links:
                reasons[name] = f"{one.vlan[1]}, which it is on, is not there"
            elif one.bond is not None and (
                missing := [leg for leg in one.bond.legs if leg not in self._links]
            ):
                reasons[name] = f"its leg {', '.join(missing)} is not there"
        return reasons

    # -- the stages, in their order

    def _stale(self) -> Iterator[Step]:
        """What was wanted and is no longer."""
        for name, was in self._before.items():
            link = link_of(was, self._seen)
            now = self._want.get(name)
            if link is None:
                continue
            if was.kind != "card" and (now is None or now.kind != was.kind):
                yield Step(name, Verb.DELETE, link.index)
                continue
            yield from self._stale_routes(was, now, link)
            yield from self._stale_addresses(was, now, link)
        for name, one in {**self._before, **self._want}.items():
            link = link_of(one, self._seen) if one.mac else None
            if link is not None and self._is_stray_leg(name, link):
                yield Step(name, Verb.RELEASE, link.index)

    def _stale_routes(self, was: Interface, now: Interface | None, link: Link) -> Iterator[Step]:
        current = {*self._boot.routes, *(now.routes if now is not None else ())}
        for to, by in was.routes:
            if (to, by) not in current and (link.name, to, by) in self._seen.routes:
                yield Step(was.name, Verb.NO_ROUTE, link.index, to, by)

    def _stale_addresses(self, was: Interface, now: Interface | None, link: Link) -> Iterator[Step]:
        current = {self._boot.address, *(now.addresses if now is not None else ())}
        for address in was.addresses:
            if address not in current and address in self._seen.addresses.get(link.name, ()):
                yield Step(was.name, Verb.NO_ADDRESS, link.index, address)

    def _is_stray_leg(self, name: str, link: Link) -> bool:
        """Whether a card is in another bond of ours than where it belongs."""
        return bool(link.master) and link.master != self._master(name) and self._ours(link.master)

    def _ours(self, master: int) -> bool:
        """Whether an index is that of a bond that is or was wanted."""
        return any(
            link.index == master
            and link.kind == "bond"
            and link.name in {**self._before, **self._want}
            for link in self._seen.links.values()
        )

    def _master(self, leg: str) -> int:
        bond = self._links.get(self._legs.get(leg, ""))
        return bond.index if bond is not None else 0

    def _names(self) -> Iterator[Step]:
        """Cards are called as the inventory calls them. One that has the name of another is called
        something else first."""
        wrong = {
            name: self._links[name]
            for name, one in self._want.items()
            if one.mac and name in self._links and self._links[name].name != name
        }
        for name, link in wrong.items():
            blocked = self._seen.links.get(name)
            other = next((n for n, its in wrong.items() if its is blocked and n != name), None)
            if link.up:
                yield Step(name, Verb.DOWN, link.index)
            if blocked is not None and other is not None:
                if blocked.up:
                    yield Step(other, Verb.DOWN, blocked.index)
                yield Step(other, Verb.RENAME, blocked.index, f"lc{blocked.index}")
            yield Step(name, Verb.RENAME, link.index, name)
            if link.up:
                yield Step(name, Verb.UP, link.index)

    def _bonds(self) -> Iterator[Step]:
        for name, one in self._want.items():
            if one.bond is None or not one.bond.legs:
                continue
            link = self._links.get(name)
            if link is None:
                yield Step(name, Verb.BOND, what=name, by=self._mac(one.bond), bond=one.bond)
            elif link.mode != MODES[one.bond.mode] or (
                one.bond.mode == "802.3ad" and link.rate != RATES[one.bond.rate]
            ):
                yield Step(name, Verb.DELETE, link.index)

    def _mac(self, bond: Bond) -> str:
        """The MAC address of a bond: that of the card that the node booted by, which all know, or
        of its first leg."""
        macs = [self._want[leg].mac for leg in bond.legs if leg in self._want]
        return self._boot.mac if self._boot.mac in macs else (*macs, "")[0]

    def _prepared(self) -> Iterator[Step]:
        """A bond is ready before the first leg comes, so that an address that moves to it is away
        for a moment only."""
        for name, one in self._want.items():
            link = self._links.get(name)
            if one.bond is None or link is None:
                continue
            if one.mtu and link.mtu != one.mtu:
                yield Step(name, Verb.MTU, link.index, number=one.mtu)
            if not link.up:
                yield Step(name, Verb.UP, link.index)
            if link.miimon != one.bond.miimon:
                yield Step(name, Verb.MIIMON, link.index, number=one.bond.miimon)

    def _enslaved(self) -> Iterator[Step]:
        """The card that the node booted by first: the address moves in that moment."""
        mine = sorted(
            self._legs,
            key=lambda leg: self._want[leg].mac != self._boot.mac if leg in self._want else True,
        )
        for leg in mine:
            link = self._links.get(leg)
            master = self._master(leg)
            if link is not None and master and link.master != master:
                if link.up:
                    yield Step(leg, Verb.DOWN, link.index)
                yield Step(leg, Verb.ENSLAVE, link.index, self._legs[leg], number=master)
        yield from self._primaries()

    def _primaries(self) -> Iterator[Step]:
        """The leg that a bond prefers, once that is in it."""
        for name, one in self._want.items():
            bond = self._links.get(name)
            if one.bond is None or bond is None:
                continue
            primary = self._links.get(one.bond.primary)
            index = primary.index if primary is not None and primary.master == bond.index else 0
            if (index or not one.bond.primary) and bond.primary != index:
                yield Step(name, Verb.PRIMARY, bond.index, one.bond.primary, number=index)

    def _vlans(self) -> Iterator[Step]:
        for name, one in self._want.items():
            base = self._links.get(one.vlan[1]) if one.vlan is not None else None
            if one.vlan is None or base is None:
                continue
            link = self._links.get(name)
            if link is None:
                yield Step(name, Verb.VLAN, base.index, name, number=one.vlan[0])
            elif (link.vlan, link.base) != (one.vlan[0], base.index):
                yield Step(name, Verb.DELETE, link.index)

    def _sizes(self) -> Iterator[Step]:
        """What is below takes larger packets first."""
        for name, one in sorted(self._want.items(), key=lambda item: self._depth(item[1])):
            link = self._links.get(name)
            if link is not None and name not in self._legs and one.mtu and link.mtu != one.mtu:
                yield Step(name, Verb.MTU, link.index, number=one.mtu)

    def _depth(self, one: Interface, most: int = 64) -> int:
        below = self._want.get(one.vlan[1]) if one.vlan is not None else None
        return 0 if below is None or not most else 1 + self._depth(below, most - 1)

    def _on(self) -> Iterator[Step]:
        for name, one in sorted(self._want.items(), key=lambda item: self._depth(item[1])):
            link = self._links.get(name)
            if link is not None and not link.up and (name not in self._legs or link.master):
                yield Step(one.name, Verb.UP, link.index)

    def _addressed(self) -> Iterator[Step]:
        for name, one in self._want.items():
            link = self._links.get(name)
            for address in one.addresses if link is not None else ():
                if link is not None and address not in self._seen.addresses.get(link.name, ()):
                    yield Step(name, Verb.ADDRESS, link.index, address)

    def _moved(self) -> Iterator[Step]:
        """The address of the boot is at one place only, once it is there."""
        holder_link = self._links.get(holder(self._want, self._boot))
        if holder_link is None or self._boot.address not in self._seen.addresses.get(
            holder_link.name, ()
        ):
            return
        for name, link in self._links.items():
            if link is not holder_link and self._boot.address in self._seen.addresses.get(
                link.name, ()
            ):
                yield Step(name, Verb.NO_ADDRESS, link.index, self._boot.address)

    def _routed(self) -> Iterator[Step]:
        for name, one in self._want.items():
            link = self._links.get(name)
            for to, by in one.routes if link is not None and link.up else ():
                if link is not None and (link.name, to, by) not in self._seen.routes:
                    yield Step(name, Verb.ROUTE, link.index, to, by)
