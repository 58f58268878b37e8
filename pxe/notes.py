"""What gets written into a node's history, and how often at most.

Packets come from strangers and from firmware that retries without end, so a decision hands out
notes, and the recorder decides which of them become events. Its tables are bounded: a flood of
made-up MAC addresses costs a fixed amount of memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.base.tally import Tally
from layercake.base.text import count_of
from layercake.kraken.events import EventKind, Severity
from layercake.moduleapi.service import Link
from pxe import events
from pxe.windows import Step, Windows

_ANEW_EVERY_S = 5.0
_OTHER_MACHINE = "correct its arch in the inventory, or its mac: it may be another machine's"
_COUNTED = {
    "dhcp": "received received-4011 malformed repeated crowded late other-servers send-failed "
    "receive-failed offered acked naked released declined unknown-mac not-armed no-program "
    "wrong-architecture no-ipv4 other-server not-for-us other-network pool-full "
    "not-told",
    "dhcpv6": "received malformed send-failed receive-failed offered acked naked released declined "
    "unknown-mac not-armed no-program wrong-architecture other-server not-for-us other-network "
    "not-told",
    "tftp": "requests malformed refused too-many send-failed done aborted silent gone broken "
    "not-told",
    "http": "2xx 3xx 4xx 5xx",
    "dns": "answered no-such-name refused forward malformed limited foreign tcp send-full not-told "
    "send-failed receive-failed",
    "ntp": "answered refused send-failed receive-failed",
    "fetch": "stranger not-armed other-file",
    "ra": "sent received send-failed",
    "notes": "limited",
}
COUNTED = tuple(
    f"{protocol}.{what}" for protocol, all_ in _COUNTED.items() for what in all_.split()
)
"""What is counted: each stands in the figures from the beginning, at 0."""
_STRANGERS = 50
"""Machines that are not known that are told one by one, as a rack of new ones is."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to tell. `severity` None is the kind's own; `every` is the least number of seconds
    between two of the same (node, kind, about)."""

    node: str
    kind: EventKind
    text: str
    severity: Severity | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    about: Hashable = ""
    every: float = 0.0
    step: Step | None = None


MOST_KEYS = 4096


class RateLimit:
    """Remembers when a key was last let through, for at most MOST_KEYS keys; the longest-unused key
    is dropped first."""

    def __init__(self) -> None:
        self._last: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def allow(self, key: Hashable, every: float, now: float) -> bool:
        """Whether at least `every` seconds have passed since this key was let through."""
        last = self._last.get(key)
        if last is not None and now - last < every:
            return False
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > MOST_KEYS:
            self._last.popitem(last=False)
        return True


class Recorder:
    """Turns notes into events and steps. `counters` are the figures of the call "stats"."""

    def __init__(self, link: Link, windows: Windows, clock: Callable[[], float]) -> None:
        self._link = link
        self._windows = windows
        self._clock = clock
        self._limit = RateLimit()
        self._strangers = Tally(at_once=_STRANGERS)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))

    def note(self, note: Note) -> None:
        """Makes an event (and a step, if it is one) of a note, unless the same came too short a
        time ago.

        Notes about no node in particular are counted beyond the first few, so that strangers cannot
        push out what is told of nodes.
        """
        now = self._clock()
        if note.step is Step.OFFER:
            self.asked(note.node, str(note.data["mac"]))
        if note.kind is events.WRONG_ARCHITECTURE:
            self._windows.spoil(note.node, note.text, now, _OTHER_MACHINE)
        if note.kind in (events.ADDRESS_TAKEN, events.OTHER_ADDRESS):
            self._windows.doubts(
                note.node, note.text if note.kind is events.OTHER_ADDRESS else "", now
            )
        new = (
            not note.every or self._limit.allow((note.node, note.kind, note.about), note.every, now)
            if note.node
            else self._strangers.admit(note.kind, note.about, note.text, now)
        )
        if note.every and not new:
            self.counters["notes.limited"] += 1
            return
        if note.step is not None:
            self._windows.record(note.node, note.step, now, note.data)
        self._link.event(note.node, note.kind, note.text, severity=note.severity, data=note.data)

    def asked(self, node: str, mac: str) -> None:
        """A card was offered something to boot, or asks for it without an offer of ours."""
        if self._windows.asked(node, mac):
            text = (
                f"{mac} has its boot script and asks for a boot program once more: it has "
                "begun anew, and gets its script again"
            )
            self.note(Note(node, events.BEGUN_ANEW, text, None, {"mac": mac}, every=_ANEW_EVERY_S))

    def answered(
        self,
        notes: Iterable[Note],
        send: Callable[[], object] | None,
        protocol: str,
        interface: str,
    ) -> None:
        """Sends an answer, if there is one, and notes what was decided; an offer that could not be
        sent was none."""
        sent = True
        if send is not None:
            try:
                send()
            except OSError as error:
                self.failed("send", protocol, interface, error)
                sent = False
        for note in notes:
            if sent or note.step is not Step.OFFER:
                self.note(note)

    def failed(self, what: str, protocol: str, interface: str, error: OSError) -> None:
        """A socket could not "send" or "receive"."""
        self.counters[f"{protocol.lower()}.{what}-failed"] += 1
        kind = events.DHCP_SEND_FAILED if what == "send" else events.DHCP_RECEIVE_FAILED
        text = f"cannot {what} {protocol} on {interface}: {error.strerror}"
        self.note(Note("", kind, text, about=(protocol, error.errno), every=60.0))

    def passes_over(self, kind: EventKind, about: Hashable, text: str) -> bool:
        """Whether one more of strangers is only counted; it is, then."""
        return self._strangers.only_counts(kind) and not self._strangers.admit(
            kind, about, text, self._clock()
        )

    def count(self) -> None:
        """Tells what was counted of strangers, when it is time."""
        for kind, times, different, seconds, last in self._strangers.due(self._clock()):
            if isinstance(kind, EventKind):
                self._link.event(
                    "",
                    kind,
                    f"{times} more in {seconds:.0f} s, from "
                    f"{count_of(different, 'address', 'addresses')}; the last: "
                    f"{last}",
                    severity=None,
                    data={"count": times, "addresses": different, "seconds": round(seconds)},
                )

    def began(self, node: str, step: Step, data: Mapping[str, Any]) -> None:
        """A transfer has begun: a step to be seen while it lasts, not yet an event."""
        self._windows.record(node, step, self._clock(), data, done=False)
