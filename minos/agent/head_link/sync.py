"""The node's side of the datagrams: what to say, and what to believe. No sockets and no clock of
its own.

Sequence numbers are nanoseconds of CLOCK_BOOTTIME, so an agent that was started again goes on above
its predecessor without stored state. A CHALLENGE echoes the sequence number of the HELLO that it
answers: an old one, recorded and sent again, cannot take a node back to an old epoch.

Where the site has several heads, the epoch of a datagram tells that of the heads too (kraken.wire).
What comes from a head of a lower one than a genuine head has told is refused.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from layercake.kraken.backoff import backoff
from layercake.kraken.errors import WireError
from layercake.kraken.wire import (
    Datagram,
    Kind,
    ReplayGuard,
    datagram_epoch,
    decode,
    encode,
    heads_epoch,
)

REMEMBERED = 16
RETRY_FIRST = 0.5
RETRY_MAX = 4.0
SEARCH_AFTER_S = 0.9
SEARCH_S = 1.0
LATELY_S = 20.0
"""Longer than it takes to find the head that acts instead of one that has ended."""
SPREAD_S = 30.0
SEARCHES = 3
"""So many times it is searched soon, whatever the size of the site: it may have been a moment."""
HELLO_S = 5.0
"""Where HELLOs are further apart than this, the site is large: see `crowd`."""
MOST_CROWD = 8.0


def crowd(hello_s: float) -> float:
    """How many times longer a node of a large site waits, when nobody waits for it, before it asks
    a head again. HELLOs of a hundred thousand nodes are 10 s apart, and such a node searches every
    8 s instead of every second: all of them at once would keep the next head from those that are
    asked something."""
    return min(max(1.0, hello_s / HELLO_S) ** 3, MOST_CROWD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The head's newest desired revision. A probe asks whether the node is there: it is answered
    with a HELLO at once."""

    revision: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The head was started again, or is another one; say HELLO at once. `revision` is the newest
    desired one that it has."""

    epoch: int
    revision: int


class TakeOver:
    """When to fetch and tell all anew from a head that acts in place of another one. The one before
    gave out its revisions in a range of its own (wire.first_revision), and what it knew it copied
    within a second: where nothing is new, and nothing was lately, ten thousand nodes need not come
    at once, and do so in the next SPREAD_S, or later in a large site (`crowd`). With a head that is
    alone, and was started again, no node waits."""

    def __init__(self, hello_s: float, several: Callable[[], bool]) -> None:
        self._spread_s = SPREAD_S * crowd(hello_s)
        self._several = several
        self.due = math.inf
        """When to do so."""
        self._news_at = -math.inf

    def news(self, now: float) -> None:
        """The node was told something, or has told something."""
        self._news_at = now

    def begins(self, message: NewEpoch, newest: int, now: float, jitter: float) -> None:
        """A head acts. `newest` is the newest revision that the node knows of."""
        waits = (
            self._several()
            and heads_epoch(message.epoch) > 0
            and message.revision == newest
            and now - self._news_at >= LATELY_S
        )
        self.due = now + self._spread_s * jitter if waits else now

    def is_due(self, now: float) -> bool:
        """Whether it is time, which is said once."""
        if now < self.due:
            return False
        self.due = math.inf
        return True


def _nothing() -> None:
    pass


class OutdatedHead(WireError):
    """A genuine DESIRED of a head of an epoch that is over: it does not know that yet. (Who
    challenges has had a HELLO that told it.)"""


class Called(WireError):
    """A genuine DESIRED of a head that this agent has not spoken with, since it began after the
    agent's last HELLO: it wants to hear one."""


class Epochs:
    """The highest epoch of the heads that a genuine head has told. Any thread may use it; `raised`
    is called when it is another."""

    def __init__(self, highest: int = 0, raised: Callable[[], None] = _nothing) -> None:
        self.highest = highest
        self._raised = raised
        self._lock = threading.Lock()

    def accept(self, epoch: int) -> bool:
        """Whether what a genuine head of this epoch says counts, which is kept then."""
        with self._lock:
            if epoch < self.highest:
                return False
            higher = epoch > self.highest
            self.highest = epoch
        if higher:
            self._raised()
        return True


class SyncCodec:
    """One session's datagrams. `epochs` are those of the heads."""

    def __init__(
        self,
        node: bytes,
        session: int,
        key: bytes,
        epoch: int,
        layout: bytes,
        epochs: Epochs | None = None,
    ) -> None:
        self.epoch = epoch
        self._epochs = epochs or Epochs(heads_epoch(epoch))
        self._node = node
        self._session = session
        self._key = key
        self._layout = layout
        self._guard = ReplayGuard()
        self._sent: deque[int] = deque(maxlen=REMEMBERED)
        self._last = 0
        self._called = epoch

    def hello(self, now_ns: int, *, revision: int, changes: int, mask: int, state: int) -> bytes:
        """A HELLO. `now_ns` is CLOCK_BOOTTIME; `changes` counts changes of the discovered state. It
        tells the highest epoch of the heads, whoever has told it: so a head that acts no more finds
        out."""
        self.epoch = max(self.epoch, datagram_epoch(self._epochs.highest, 0))
        self._last = max(now_ns, self._last + 1)
        self._sent.append(self._last)
        datagram = Datagram(
            Kind.HELLO,
            self._node,
            self._session,
            self.epoch,
            self._last,
            cfg_revision=revision,
            dsc_revision=changes,
            layout=self._layout,
            mask=mask,
            state=state,
        )
        return encode(datagram, self._key)

    def receive(self, data: bytes) -> Wanted | NewEpoch:
        """What a datagram from the head says. Raises WireError for what is malformed, forged,
        replayed or not for this node, OutdatedHead for a head that acts no more, Called (once for
        each life of a head) for one that wants to hear HELLO."""
        datagram = decode(data, self._key)
        if (datagram.node, datagram.session) != (self._node, self._session):
            raise WireError("cannot accept datagram: it is for another session")
        if datagram.kind is Kind.CHALLENGE:
            if datagram.sequence not in self._sent:
                raise WireError("cannot accept challenge: it answers no HELLO of this agent")
            if not self._epochs.accept(heads_epoch(datagram.epoch)):
                raise WireError("cannot accept challenge: another head acts by now")
            self._sent.remove(datagram.sequence)
            self.epoch = datagram.epoch
            self._guard = ReplayGuard()
            return NewEpoch(datagram.epoch, datagram.cfg_revision)
        if datagram.kind is not Kind.DESIRED:
            raise WireError("cannot accept datagram: a node sends those")
        if not self._epochs.accept(heads_epoch(datagram.epoch)):
            raise OutdatedHead("cannot accept datagram: another head acts by now")
        if datagram.epoch != self.epoch:
            if datagram.epoch != self._called:
                self._called = datagram.epoch
                raise Called("cannot accept datagram: its head has not challenged this agent yet")
            raise WireError("cannot accept datagram: it is of another epoch of the head")
        if not self._guard.accept(datagram.sequence):
            raise WireError("cannot accept datagram: its sequence number was used before")
        return Wanted(datagram.cfg_revision, probe=datagram.dsc_revision == 0)


class HelloTimer:
    """When to say HELLO: at once when something changed, soon again until it is answered, else
    every `period` seconds.

    The period is jittered by a tenth, so that nodes which started together do not stay together.
    Where there are `several` heads, one that does not answer for SEARCH_AFTER_S is not waited for:
    all of them are asked (`searching`), about every SEARCH_S, and in a large site less often after
    SEARCHES times.
    """

    def __init__(self, period: float, several: Callable[[], bool] = lambda: False) -> None:
        self._period = period
        self._several = several
        self._search_s = SEARCH_S * crowd(period)
        self._searches = 0
        self._unanswered = 0
        self._since = 0.0
        self.due = 0.0

    def now(self) -> None:
        """Something changed."""
        self.due = 0.0

    def hello_sent(self, now: float, jitter: float) -> None:
        """A HELLO went out; `jitter` is from [0, 1)."""
        if not self._unanswered:
            self._since = now
        self._unanswered += 1
        if self.searching(now):
            search_s = SEARCH_S if self._searches < SEARCHES else self._search_s
            self._searches += 1
            self.due = now + search_s * (0.75 + 0.5 * jitter)
            return
        if self._several():
            self.due = now + RETRY_FIRST
            return
        wait = self._period * (0.9 + 0.2 * jitter)
        retry = backoff(self._unanswered, RETRY_FIRST, wait * 2 + RETRY_MAX)
        self.due = now + (min(wait, retry) if retry <= RETRY_MAX else wait)

    def searching(self, now: float) -> bool:
        """Whether all heads are to be asked."""
        return self._unanswered > 1 and self._several() and now - self._since >= SEARCH_AFTER_S

    def answered(self, now: float, jitter: float) -> None:
        """The head has answered."""
        if self._unanswered:
            self._unanswered = 0
            self._searches = 0
            self.due = now + self._period * (0.9 + 0.2 * jitter)
