"""What the engine knows about one node, and the events and effects of `converge.step`. Frozen
facts, no behaviour.

Times are seconds of the caller's clock, the one that it passes to `step` as `now`; math.inf stands
for never.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from layercake.kraken.errors import InputError
from layercake.kraken.variables import UNKNOWN, Goal

NEVER = math.inf
NOTHING: Mapping[str, int] = {}
"""No counts: nodes share it."""
BACKOFF_CAP_S = 300.0


@dataclass(frozen=True, slots=True)
class Active:
    """A mutation under way. `mine` is false when the other actor carries it out and this one only
    waits. `superseded` once something else is wanted than when it was started: what it leads to
    then is no failure."""

    mutation: str
    attempt: int
    started: float
    deadline: float
    mine: bool
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why the engine has stopped trying. `since` is on the caller's clock. `mutation` is what
    failed too often, "" if nothing did: the node was barred, and only a person or another wish ends
    that."""

    mutation: str
    reason: str
    since: float
    attempts: int


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _time(value: float | None) -> float:
    return NEVER if value is None else float(value)


@dataclass(frozen=True, slots=True)
class NodeState:
    """All that the engine remembers of a node.

    `state` is the discovered state, packed; `wake` is when `step(Tick())` is next due. `assumed`
    masks variables whose value was put down by a timeout and never seen. `attempts` counts failed
    attempts by mutation, `rounds` completions since the node last was stable; both are what keeps a
    node from going round in circles. `met_since` is when the goal was met, None when it is not.
    `asked` is the guarded mutation that waits for permission, "" for none; it is asked for anew by
    a head that was started again.
    """

    state: int
    goal: Goal
    active: Active | None = None
    attempts: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    not_before: float = 0.0
    quarantine: Quarantine | None = None
    held_until: float = 0.0
    last_error: str = ""
    wake: float = 0.0
    assumed: int = 0
    rounds: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    met_since: float | None = None
    no_chain: bool = False
    asked: str = ""

    @classmethod
    def fresh(cls, goal: Goal) -> NodeState:
        """A node of which nothing is known; it is due for a step at once."""
        return cls(0, goal)

    def resumed(self, now: float) -> NodeState:
        """This node after the process that acted for it was started again: nothing is under way,
        and it is due for a step.

        Waiting is cut to what the back-off allows, since the clock may have started anew too.
        """
        return dataclasses.replace(
            self,
            active=None,
            wake=now,
            held_until=0.0,
            met_since=None,
            asked="",
            not_before=min(self.not_before, now + BACKOFF_CAP_S),
        )

    def resumed_unknown(self, now: float, goal: Goal) -> NodeState:
        """The same with another goal, and nothing known of its state: 1 us, 10 by way of
        `resumed`."""
        return NodeState(
            0,
            goal,
            None,
            self.attempts,
            min(self.not_before, now + BACKOFF_CAP_S),
            self.quarantine,
            0.0,
            self.last_error,
            now,
            0,
            self.rounds,
            None,
            self.no_chain,
        )

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready form. The packed ints mean something only beside the digest of the layout
        that packed them."""
        active = self.active
        return {
            "state": self.state,
            "goal": [self.goal.mask, self.goal.value],
            "attempts": dict(self.attempts),
            "active": None
            if active is None
            else {
                "mutation": active.mutation,
                "attempt": active.attempt,
                "started": active.started,
                "deadline": _finite(active.deadline),
                "mine": active.mine,
                "superseded": active.superseded,
            },
            "not_before": self.not_before,
            "held_until": self.held_until,
            "last_error": self.last_error,
            "wake": _finite(self.wake),
            "quarantine": None if self.quarantine is None else dataclasses.asdict(self.quarantine),
            "assumed": self.assumed,
            "rounds": dict(self.rounds),
            "met_since": self.met_since,
            "no_chain": self.no_chain,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> NodeState:
        """The node that `to_record` described. Raises InputError if the record is of another
        form."""
        try:
            active = record["active"]
            quarantine = record["quarantine"]
            return cls(
                int(record["state"]),
                Goal(*(int(n) for n in record["goal"])),
                None
                if active is None
                else Active(**dict(active) | {"deadline": _time(active["deadline"])}),
                dict(record["attempts"]),
                float(record["not_before"]),
                None if quarantine is None else Quarantine(**quarantine),
                float(record["held_until"]),
                str(record["last_error"]),
                _time(record["wake"]),
                int(record["assumed"]),
                dict(record["rounds"]),
                record["met_since"],
                bool(record["no_chain"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"cannot read the stored state of a node: {type(error).__name__}: {error}",
                hint="it was written by another version; begin with NodeState.fresh",
            ) from error


@dataclass(frozen=True, slots=True)
class Discovered:
    """Values were found out, by looking or by being told. UNKNOWN is a value too: what was known is
    so no longer."""

    values: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True, slots=True)
class DesiredChanged:
    """Something else is wanted. `fresh` says that it is new although the goal's bits are not
    (another image set, say). `found` is what is known anew at the same time: what ran as wanted may
    be something else now, through nobody's failure."""

    goal: Goal
    fresh: bool = False
    found: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt of this actor failed. Ignored unless it is the attempt under way. `after` is said
    of what has begun and does not get on: the last that was seen of it. It has stalled, then, which
    is the same as a timeout before its time."""

    mutation: str
    attempt: int
    error: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A person (or what acts for one) says: try again. `why` says who did what, in words."""

    why: str


@dataclass(frozen=True, slots=True)
class Barred:
    """Nothing more is to be tried before a person has looked: the reason says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """Start nothing before `until`: this actor was started again and does not know yet what
    runs."""

    until: float


@dataclass(frozen=True, slots=True)
class Released:
    """A hold ends early."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The mutation under way gets on (a boot step was seen): its deadline moves to `extend_to`,
    within limits; `sooner`: also if that is earlier than it was."""

    mutation: str
    extend_to: float
    sooner: bool = False


@dataclass(frozen=True, slots=True)
class Permitted:
    """The guarded mutation that was asked for may begin. Ignored if it is not the next step any
    more."""

    mutation: str


Event: TypeAlias = (
    Discovered
    | DesiredChanged
    | Tick
    | Failed
    | Cleared
    | Barred
    | Held
    | Released
    | Progress
    | Permitted
)


@dataclass(frozen=True, slots=True)
class Start:
    """Begin this attempt at a mutation of one's own."""

    mutation: str
    attempt: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A guarded mutation is next: it begins when Permitted says so. Asked once, until another step
    is next."""

    mutation: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the attempt under way; its result no longer matters."""

    mutation: str
    why: str


@dataclass(frozen=True, slots=True)
class Await:
    """The other actor's turn: wait for it, at most `timeout` seconds (math.inf: as long as it
    takes)."""

    mutation: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Changed:
    """The discovered state changed; both states are packed."""

    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The mutation under way reached what it was for, `seconds` after its start."""

    mutation: str
    seconds: float


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt failed. `retry_at` is when the engine goes on, None when it does not."""

    mutation: str
    attempt: int
    error: str
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The engine has stopped trying."""

    quarantine: Quarantine


@dataclass(frozen=True, slots=True)
class Unquarantined:
    """The engine goes on."""

    why: str


@dataclass(frozen=True, slots=True)
class NoChain:
    """There is no chain from here to the goal. Said once, until there is one or something else is
    wanted."""


Effect: TypeAlias = (
    Start
    | Ask
    | Cancel
    | Await
    | Changed
    | Completed
    | AttemptFailed
    | Quarantined
    | Unquarantined
    | NoChain
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """How a node was when it was written last: its discovered values, and since when it was as
    wanted (clock seconds)."""

    values: Mapping[str, str]
    met_since: float | None

    def holds(self, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether what is seen now is what was."""
        return all(
            before[name] == UNKNOWN if value == UNKNOWN else self.values.get(name) == value
            for name, value in after.items()
        )

    def complete(self, values: Mapping[str, str]) -> bool:
        """Whether all of it was seen anew."""
        return all(v in (UNKNOWN, values.get(name, v)) for name, v in self.values.items())

    def without(self, names: Collection[str]) -> Remembered | None:
        """The values of all other names: of these it is known how they are. None if there are none;
        since when it was as wanted counts no more."""
        left = {k: v for k, v in self.values.items() if k not in names and v != UNKNOWN}
        return Remembered(left, None) if left else None

    def fill(self, values: Mapping[str, str]) -> dict[str, str]:
        """The values that are known, and how the others were."""
        return {k: self.values.get(k, v) if v == UNKNOWN else v for k, v in values.items()}
