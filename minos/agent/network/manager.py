"""Keeps the node's interfaces as they are wanted: sets them, sees what others change, and tells. A
thread of its own.

What is in force is in RUN/network.json, with how the interfaces were then: so an agent that was
started again, or replaced, finds what has changed meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from layercake.base.files import read_json, write_json
from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.agent.head_link.outbox import EventSink
from minos.agent.network.modules import need, needed
from minos.agent.network.reporter import InterfaceReporter
from minos.agent.network.steps import Plan, Seen, Step, Verb, card
from minos.agent.network.views import View, views
from minos.agent.network.wanted import Boot, Interface, arranged, boot_card, holder, read, waits
from minos.events import NETWORK_FAILED, NETWORK_SET

CARDS_S = 10.0
"""How long a card that is wanted may take to show up, before the rest is done without it: some load
firmware first."""
REACH_S = 40.0
"""How long the head may be away after the boot's address has moved: switches take half a minute for
a port that is new to them."""
RETRY_S = 60.0
ROUNDS = 60
_SOON = 0.5
_IDLE = 60.0


class Kernel(Protocol):
    """What there is, and one step done (kernel.py)."""

    def read_state(self) -> Seen:
        """What there is. Raises OperationFailed, OSError."""

    def do(self, step: Step) -> None:
        """Does one step. Raises OperationFailed, OSError."""


class InterfaceManager:
    """`record` is the file that has what is in force. `live`: images may run already, so what would
    take the network from them waits. `fetch` gets a kernel module (modules.py), `reach` waits so
    many seconds for the head and says whether it can be reached, `clock` gives seconds."""

    def __init__(
        self,
        record: Path,
        boot: Boot,
        event: EventSink,
        kernel: Kernel,
        *,
        fetch: Callable[[str], None],
        reach: Callable[[float], bool],
        clock: Callable[[], float],
        live: bool,
    ) -> None:
        self._path = record
        self._boot = boot
        self._event = event
        self._kernel = kernel
        self._fetch = fetch
        self._reach = reach
        self._clock = clock
        self._live = live
        self._inbox: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._wanted: dict[str, Interface] = {}
        self._before: dict[str, Interface] = {}
        self._document: Mapping[str, Any] = {}
        self._refused: Mapping[str, Any] | None = None
        self._waiting: dict[str, str] = {}
        self._failed: dict[Step, str] = {}
        self._without: dict[Verb, str] = {}
        self._out: dict[str, str] = {}
        self._calm = True
        self._patience = 0.0
        self._retry_at = 0.0
        self._tell = InterfaceReporter(event, clock)
        self.settled = threading.Event()
        """Set when what was wanted first is as far as it gets for now."""
        self._load()

    def set_desired(self, said: Mapping[str, Any]) -> None:
        """Wants interfaces, as the head's document has them. From any thread."""
        self._inbox.put(said)

    def tell_again(self) -> None:
        """The head was started again: it is told how the interfaces are. From any thread."""
        self._inbox.put(None)

    # -- a turn

    def turn(self) -> float:
        """Looks, does what is to be done, and tells; the seconds until the next turn, if nothing
        changes by then."""
        self._take_in()
        if not (self._wanted or self._before or self._waiting):
            self.settled.set()
            return _IDLE
        now = self._clock()
        if now >= self._retry_at:
            self._try_all_again(now)
        began, seen, touched = self._approach()
        want = self._arranged
        lacking = Plan(want, seen, {}, self._boot).lacking()
        patient = not self._calm and now < self._patience
        if patient and any(name in lacking for name, one in want.items() if one.mac):
            return _SOON
        troubles = self._troubles(lacking)
        current_views = views(want, seen, troubles)
        if self._calm:
            self._tell.drift(touched, views(want, began, {}))
        else:
            self._finish_change(current_views, troubles)
        if self._tell.all(current_views, troubles):
            self._save(current_views)
        return _SOON if self._tell.pending else max(_SOON, min(_IDLE, self._retry_at - now))

    def _try_all_again(self, now: float) -> None:
        """Forgets what could not be done."""
        self._failed = {}
        self._without = {}
        self._retry_at = now + RETRY_S
        self._out = {leg: why for leg, why in self._out.items() if leg in self._beside_boot}

    def _take_in(self) -> None:
        """What other threads have handed over."""
        while not self._inbox.empty():
            document = self._inbox.get()
            if document is None:
                self._tell.again()
            else:
                self._accept(document)

    @property
    def _arranged(self) -> dict[str, Interface]:
        return arranged(self._wanted, self._boot, self._out)

    @property
    def _beside_boot(self) -> tuple[str, ...]:
        """The legs of the bond that the boot card should be in: to try that again would take the
        network from what runs."""
        bond = self._wanted.get(holder(self._wanted, self._boot))
        return bond.bond.legs if bond is not None and bond.bond is not None else ()

    def _finish_change(self, shown: list[View], troubles: Mapping[str, str]) -> None:
        self._calm = True
        self._before = {}
        self._live = True
        self._save(shown)
        if self._wanted and not troubles:
            names = ", ".join(sorted(self._wanted))
            self._event(
                NETWORK_SET,
                f"the interfaces are as the inventory has them: {names}",
                interfaces=sorted(self._wanted),
            )
        self.settled.set()

    def _troubles(self, lacking: Mapping[str, str]) -> dict[str, str]:
        """{interface: what is wrong with it}, the first thing of each."""
        return {
            **self._waiting,
            **lacking,
            **{step.on: why for step, why in reversed(self._failed.items())},
            **self._out,
        }

    # -- what is wanted

    def _accept(self, said: Mapping[str, Any]) -> None:
        try:
            wanted = read(said)
            waiting = self._waits(wanted) if self._live else {}
        except (LayercakeError, OSError) as error:
            if said != self._refused:
                self._refused = said
                self._event(NETWORK_FAILED, str(error))
            return
        self._waiting = waiting
        if waiting or (wanted == self._wanted and self._calm and self._live):
            return
        if wanted != self._wanted:
            self._before = {**self._before, **self._wanted}
        self._document = said
        self._wanted = wanted
        self._calm = False
        self._failed = {}
        self._without = {}
        self._out = {}
        self._patience = self._clock() + CARDS_S

    def _waits(self, wanted: Mapping[str, Interface]) -> dict[str, str]:
        seen = self._kernel.read_state()
        renamed = {
            name: f"waits for the next boot: card {one.mac} is in use as {link.name}"
            for name, one in wanted.items()
            if one.mac
            and (link := card(one.mac, seen)) is not None
            and link.up
            and link.name != name
        }
        return {**waits(self._wanted, wanted, self._boot), **renamed}

    def _load(self) -> None:
        try:
            stored = read_json(self._path)
            document = stored["interfaces"]
            self._wanted = read(document)
            self._document = document
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            LayercakeError,
        ):  # there is none: the head's document comes next
            return
        self._live = True
        self._tell.remember(stored.get("views") or [], stored.get("legs") or {})
        self.settled.set()

    def _save(self, shown: list[View]) -> None:
        write_json(
            self._path, {"interfaces": self._document, "views": shown, "legs": self._tell.legs}
        )

    # -- towards it

    def _approach(self) -> tuple[Seen, Seen, set[str]]:
        """Does all that can be done. What there was and what there is then, and the interfaces that
        were not as wanted. Raises OperationFailed, OSError if nothing can be seen."""
        touched = set[str]()
        moved = False
        seen = began = self._kernel.read_state()
        self._modules(seen)
        for _ in range(ROUNDS):
            todo = Plan(self._arranged, seen, self._before, self._boot).next(self._failed)
            if not todo and not (moved and self._lost()):
                break
            touched |= {step.on for step in todo}
            moved = self._all(todo) or (moved and bool(todo))
            seen = self._kernel.read_state()
        return began, seen, touched

    def _modules(self, seen: Seen) -> None:
        """Has the kernel's modules loaded, before anything is touched: they may have to come over
        the network."""
        for verb in needed(self._arranged, seen) - self._without.keys():
            try:
                if need(verb, self._fetch) and verb is Verb.BOND:
                    self._drop_default()
            except LayercakeError as error:
                self._without[verb] = str(error)

    def _all(self, todo: list[Step]) -> bool:
        """Does the steps of a stage; what follows on one that failed is left out. Whether the boot
        card has become a leg."""
        stopped = set[str]()
        moved = False
        for step in todo:
            if step.on in stopped:
                continue
            try:
                if step.verb in self._without:
                    raise OperationFailed(self._without[step.verb])
                self._kernel.do(step)
                moved |= step.verb is Verb.ENSLAVE and step.on == boot_card(
                    self._wanted, self._boot
                )
            except (LayercakeError, OSError) as error:
                stopped.add(step.on)
                self._failed[step] = str(error)
                if step.verb is Verb.ENSLAVE:
                    self._out[step.on] = str(error)
                elif step.bond is not None:  # the boot card has to go on without it
                    self._out |= dict.fromkeys(
                        step.bond.legs, f"it is no leg of {step.on}: {error}"
                    )
        return moved

    def _drop_default(self) -> None:
        """The bond that the module makes by itself when it is loaded (bonding.rst, max_bonds)."""
        bond0 = self._kernel.read_state().links.get("bond0")
        if bond0 is not None and bond0.kind == "bond":
            self._kernel.do(Step("bond0", Verb.DELETE, bond0.index))

    def _lost(self) -> bool:
        """Whether the head cannot be reached by the bond that the boot card is a leg of now: then
        it is one no longer."""
        if self._reach(REACH_S):
            return False
        leg = boot_card(self._wanted, self._boot)
        bond = holder(self._arranged, self._boot)
        self._out[leg] = f"the head cannot be reached by {bond}: it was taken out of it again"
        return True
