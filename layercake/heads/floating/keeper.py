"""Keeps the floating addresses where they belong: on the head that leads, while its lease lasts.

Each address is added for as many seconds as the lease surely lasts, and added again when the lease
was renewed. So the kernel takes it away in time also if this process is stopped or killed, and no
machine that has led keeps one. Looked after in a thread, as a busy head must lose none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from layercake.base.clock import boottime
from layercake.heads.floating import interface
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.network import HeadAddress

log = logging.getLogger("layercake.heads")
TURN_S = 0.2
RENEW_S = 0.9
"""A lease that lasts so much longer than when the address was added last was renewed meanwhile."""
ALONE_S = 60.0
"""So long a head that is alone has its addresses without adding them again."""
FIRST = 8
"""So many times a new address is announced with each renewal, then once in EVERY of them: switches
and neighbours miss one, and Linux takes no notice of one within a second of another."""
EVERY = 30


def alone() -> float:
    """Until when a head has its addresses that has no others beside it."""
    return boottime() + ALONE_S


def take_away(addresses: Sequence[str]) -> None:
    """Takes addresses off this machine that another head has, or may have soon."""
    for address in addresses:
        try:
            if interface.remove(address):
                log.info("%s is not on this machine any more", address)
        except OperationFailed as error:
            log.error("%s", error)


class FloatingAddresses:
    """Has `addresses` on this machine until the moment (boottime) that `until` gives, each time it
    is asked; 0 for not at all. `hold` is the head's, the rest for any thread."""

    def __init__(self, addresses: Sequence[HeadAddress], until: Callable[[], float]) -> None:
        self._addresses = addresses
        self._until = until
        self._set: dict[str, float] = {}
        self._renewals: dict[str, int] = {}
        self._troubles: dict[str, str] = {}
        self._turn = threading.Lock()
        self._end = threading.Event()
        self._broken = ""
        self.refused: Mapping[str, str] = {}
        """{address: why} of those that somebody else has."""

    @property
    def troubles(self) -> list[str]:
        """What is wrong with them."""
        found = [
            f"cannot use {address}, one of floating_addresses in config.yaml: {why}"
            for address, why in {**self._troubles, **self.refused}.items()
        ]
        if self._broken:
            found.append(f"cannot look after the floating addresses: {self._broken}")
        return found

    async def hold(self) -> None:
        """Looks after them until it is cancelled, and takes them away then."""
        thread = threading.Thread(target=self._run, name="floating addresses", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._end.set()
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        while self._addresses and not self._end.is_set():
            try:
                self.turn()
                self._broken = ""
            except Exception as error:  # a fault of ours: the kernel takes them away in time
                if not self._broken:
                    log.exception("cannot look after the floating addresses")
                self._broken = f"{type(error).__name__}: {error}"
            self._end.wait(TURN_S)
        self.give_up()

    def turn(self) -> None:
        """Looks once: what may not be here any more goes first."""
        with self._turn:
            until = self._until()
            left_s = until - boottime()
            if left_s < 2 * TURN_S:
                self._remove()
                return
            if left_s < 1.0:
                return  # the kernel counts whole seconds, and was told when it ends before
            for one in self._addresses:
                renewed = until - self._set.get(one.address, 0.0) >= RENEW_S
                if renewed and one.address not in self.refused:
                    self._renew(one, until, int(left_s))

    def _renew(self, one: HeadAddress, until: float, seconds: int) -> None:
        try:
            interface.renew(one, seconds)
            self._set[one.address] = until
            before = self._renewals.get(one.address, 0)
            self._renewals[one.address] = before + 1
            if before < FIRST or before % EVERY == 0:
                interface.announce(one)
            if not before:
                log.info("%s is on %s of this machine now", one.address, one.interface)
            self._troubles.pop(one.address, None)
        except OperationFailed as error:
            if self._troubles.get(one.address) != error.message:
                log.error("%s", error)
            self._troubles[one.address] = error.message

    def give_up(self) -> None:
        """Takes them away; they come again only if `until` says so."""
        with self._turn:
            self._remove()

    def _remove(self) -> None:
        if self._set:
            take_away([one.address for one in self._addresses if one.address in self._set])
            self._set.clear()
            self._renewals.clear()
