"""The addresses that guests of one network get: who has which, and until when. Pure: the time is an
argument, in seconds.

A guest is one MAC address with one client identifier (RFC 2131 section 4.2, RFC 4361): firmware and
a system on one card may have two addresses, and clones with one identifier have one each. A guest
keeps its address for as long as nobody else needs it.

A flood of made-up guests costs a fixed amount of memory, for nothing is kept beyond one lease for
each address, and it takes no address away that is leased: first go the addresses that nobody had,
then those whose lease is over, the longest ago first, and then those that were offered and not
asked for since.
"""

from __future__ import annotations

import enum
import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

OF_ONE_MAC = 4
"""Addresses that one MAC address has at most: firmware, iPXE, an installer and a system each may
have an identifier of its own."""
OFFER_S = 15.0
ASIDE_S = 3600.0
"""Seconds that an offer is held for, and that an address is not given to anybody which a guest says
is used by something else."""
_ASIDE_PART = 4
"""One in so many addresses is set aside at most: what a stranger says is no proof."""


class DynamicClient(NamedTuple):
    """Who asks: six bytes of a MAC address, and option 61, b"" without."""

    mac: bytes
    id: bytes = b""


class State(enum.Enum):
    """What an address is that is not free for anybody."""

    OFFERED = "offered"
    LEASED = "leased"
    ASIDE = "aside"
    PAST = "past"


@dataclass(slots=True)
class Lease:
    """Of an address: whose it is, or was, until when, and what the guest called itself. `was` is
    whether it was leased before."""

    address: int
    guest: DynamicClient
    state: State
    until: float
    name: str = ""
    was: bool = False


class Pool:
    """The addresses, as numbers, in the order in which they are given first."""

    def __init__(self, addresses: Iterable[int]) -> None:
        self._free: OrderedDict[int, None] = OrderedDict((address, None) for address in addresses)
        self.size = len(self._free)
        self._of: dict[bytes, dict[DynamicClient, Lease]] = {}
        self._in: dict[State, OrderedDict[int, Lease]] = {state: OrderedDict() for state in State}
        self._ends: list[tuple[float, int]] = []

    # -- what is so

    def used(self, now: float) -> int:
        """How many addresses nobody else can get: those that are leased, and those that are set
        aside."""
        self._lapse(now)
        return len(self._in[State.LEASED]) + len(self._in[State.ASIDE])

    def leases(self, now: float) -> list[Lease]:
        """The leases that are running, by address."""
        self._lapse(now)
        return sorted(self._in[State.LEASED].values(), key=lambda lease: lease.address)

    def durable_leases(self) -> list[Lease]:
        """What is to outlive a restart: all but offers."""
        return [
            lease
            for state in (State.LEASED, State.ASIDE, State.PAST)
            for lease in self._in[state].values()
        ]

    def knows(self, mac: bytes) -> bool:
        """Whether a card has an address here, or had one."""
        return mac in self._of

    def of(self, guest: DynamicClient, now: float) -> Lease | None:
        """The guest's lease, offer, or lease that is over and that nobody else has taken since."""
        self._lapse(now)
        return self._of.get(guest.mac, {}).get(guest)

    # -- what happens

    def offer(self, guest: DynamicClient, wanted: int | None, now: float) -> Lease | None:
        """Holds an address for a guest: its own, the one that it wants if nobody had that, or
        another. None: there is none left."""
        lease = self.of(guest, now)
        if lease is None:
            address = self._choose(guest, wanted)
            if address is None:
                return None
            lease = self._assign(address, guest)
        if lease.state is not State.LEASED:
            self._set_state(lease, State.OFFERED, now + OFFER_S)
        return lease

    def grant(
        self, guest: DynamicClient, address: int, seconds: float, name: str, now: float
    ) -> Lease | None:
        """Leases a guest the address that it asks for, or asks for again. None: somebody else has
        it, or it is not in the pool."""
        lease = self.of(guest, now)
        if lease is None:
            if not self._is_free(address) or len(self._of.get(guest.mac, ())) >= OF_ONE_MAC:
                return None
            self._vacate(address)
            lease = self._assign(address, guest)
        elif lease.address != address:
            return None
        lease.name = name
        lease.was = True
        self._set_state(lease, State.LEASED, now + seconds)
        return lease

    def release(self, guest: DynamicClient, address: int, now: float) -> bool:
        """A guest gives its address back (RFC 2131 section 4.3.4). Whether it was its own."""
        lease = self.of(guest, now)
        if lease is None or lease.address != address or lease.state is not State.LEASED:
            return False
        self._set_state(lease, State.PAST, now)
        return True

    def decline(self, guest: DynamicClient, address: int, now: float) -> bool:
        """A guest says that something else uses its address (RFC 2131 section 4.3.3). Whether it
        was its own."""
        lease = self.of(guest, now)
        if lease is None or lease.address != address or lease.state is State.PAST:
            return False
        self._forget(lease)
        lease.guest = DynamicClient(b"")
        lease.was = False
        self._set_state(lease, State.ASIDE, now + ASIDE_S)
        aside = self._in[State.ASIDE]
        if len(aside) > max(1, self.size // _ASIDE_PART):
            self._drop(next(iter(aside.values())))
        return True

    def restore(self, lease: Lease, now: float) -> bool:
        """Takes a lease over that was written down. Whether the address is still in the pool, and
        nobody's."""
        if lease.address not in self._free or lease.guest in self._of.get(lease.guest.mac, ()):
            return False
        del self._free[lease.address]
        if lease.state is not State.ASIDE:
            self._of.setdefault(lease.guest.mac, {})[lease.guest] = lease
        self._set_state(lease, lease.state, lease.until)
        self._lapse(now)
        return True

    # -- inside

    def _is_free(self, address: int) -> bool:
        """Whether nobody has leased an address of the pool."""
        return address in self._free or any(
            address in self._in[state] for state in (State.OFFERED, State.PAST)
        )

    def _choose(self, guest: DynamicClient, wanted: int | None) -> int | None:
        """An address for a guest that has none."""
        own = self._of.get(guest.mac, {}).values()
        if len(own) >= OF_ONE_MAC:  # one of those that its own card has no use for any more
            unused = [lease for lease in own if lease.state is not State.LEASED]
            return (
                self._given_up(min(unused, key=lambda lease: (not lease.was, lease.until)))
                if unused
                else None
            )
        if wanted in self._free:
            return wanted
        if self._free:
            return next(iter(self._free))
        for state in (State.PAST, State.OFFERED):
            if self._in[state]:
                return self._given_up(next(iter(self._in[state].values())))
        return None

    def _given_up(self, lease: Lease) -> int:
        self._drop(lease)
        return lease.address

    def _vacate(self, address: int) -> None:
        for state in (State.OFFERED, State.PAST):
            if (lease := self._in[state].get(address)) is not None:
                self._drop(lease)
                return

    def _assign(self, address: int, guest: DynamicClient) -> Lease:
        del self._free[address]
        lease = Lease(address, guest, State.OFFERED, 0.0)
        self._of.setdefault(guest.mac, {})[guest] = self._in[State.OFFERED][address] = lease
        return lease

    def _set_state(self, lease: Lease, state: State, until: float) -> None:
        """Moves a lease to the end of those in a state."""
        self._in[lease.state].pop(lease.address, None)
        lease.state = state
        lease.until = until
        self._in[state][lease.address] = lease
        if state is not State.PAST:
            heapq.heappush(self._ends, (until, lease.address))
        if len(self._ends) > 4 * self.size + 64:
            self._ends = [
                (lease.until, lease.address)
                for state in State
                if state is not State.PAST
                for lease in self._in[state].values()
            ]
            heapq.heapify(self._ends)

    def _drop(self, lease: Lease) -> None:
        """Nothing is known of an address any more."""
        del self._in[lease.state][lease.address]
        if lease.state is not State.ASIDE:
            self._forget(lease)
        self._free[lease.address] = None

    def _forget(self, lease: Lease) -> None:
        """A lease is not its guest's any more."""
        own = self._of[lease.guest.mac]
        del own[lease.guest]
        if not own:
            del self._of[lease.guest.mac]

    def _lapse(self, now: float) -> None:
        """What is over is over: a lease is remembered, an offer to somebody who had none is not."""
        while self._ends and self._ends[0][0] <= now:
            until, address = heapq.heappop(self._ends)
            for state in (State.OFFERED, State.LEASED, State.ASIDE):
                lease = self._in[state].get(address)
                if lease is not None and lease.until == until:
                    if lease.was:
                        self._set_state(lease, State.PAST, until)
                    else:
                        self._drop(lease)
