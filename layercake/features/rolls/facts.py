"""What a roll is, what is known of its nodes, and what it asks for. Frozen facts, no behaviour
beyond arithmetic.

Times are seconds of the head's clock. Structs rather than dataclasses: ten thousand of them are
made anew in a roll.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from layercake.fleet.persistence.schema import RESTORE_HINT
from layercake.fleet.store import WantedImage
from layercake.kraken.errors import InputError
from layercake.kraken.events import EventKind, Severity

REST_STAGE = "all"
"""As the last stage: every node of the range that is in no stage before."""
STAGE_S = 900.0
"""How long a node may take to stage the new content; a slow link to a large image takes minutes."""
STAGE_TRIES = 3
STAGE_WIDTH = 500
"""How many nodes stage at once: each fetches from the head."""
STAGE_WIDE = 2000
"""How many stage at once as long as each is ready within STAGE_QUICK_S."""
STAGE_QUICK_S = 2.0
STAGE_SHARE = 400
"""Of so many nodes of a roll, one must be done before the next begin."""
SWITCH_S = 330.0
"""How long a node may take to switch: image-update's own timeout, and what it takes for its verdict
to travel."""
ABSENT_S = 90.0
"""How long a node that is not in sync is waited for before its turn, once the roll is under way."""


class Phase(StrEnum):
    """The state of a roll."""

    SCHEDULED = "scheduled"
    STAGING = "staging"
    ROLLING = "rolling"
    PAUSED = "paused"
    ROLLING_BACK = "rolling back"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"


OVER = frozenset({Phase.DONE, Phase.ABORTED, Phase.FAILED})


class Kind(StrEnum):
    """What is rolled."""

    IMAGES = "images"
    BOOT = "boot set"
    AGENT = "agent"


class NodePhase(StrEnum):
    """How far a node is in a roll."""

    WAITING = "waiting"
    STAGING = "staging"
    STAGED = "staged"
    BUSY = "busy"
    SWITCHING = "switching"
    WATCHING = "watching"
    CONDEMNED = "to go back"
    RETURNING = "going back"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    SKIPPED = "skipped"


ENDED = frozenset({NodePhase.DONE, NodePhase.FAILED, NodePhase.ROLLED_BACK, NodePhase.SKIPPED})
OnFailure: TypeAlias = Literal["rollback", "pause"]
OnStageFailure: TypeAlias = Literal["skip", "fail"]


class Amount(msgspec.Struct, frozen=True):
    """A number of nodes, or a share of them."""

    number: int
    percent: bool = False

    def of(self, total: int) -> int:
        """How many of `total` nodes; rounded down, and at least one, or a small group would never
        move."""
        return max(1, total * self.number // 100 if self.percent else self.number)

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


_AMOUNT = re.compile(r"([0-9]{1,6})(%?)", re.ASCII)


def parse_amount(what: str, text: str) -> Amount:
    """ "5" or "10%". Raises InputError that names `what`."""
    match = _AMOUNT.fullmatch(text.strip())
    number = int(match[1]) if match else 0
    if match is None or number < 1 or (match[2] and number > 100):
        raise InputError(
            f"cannot use {what} {text[:40]!r}: it is a number of nodes or a percentage",
            hint="for example 5 or 10%",
        )
    return Amount(number, bool(match[2]))


class Plan(msgspec.Struct, frozen=True):
    """How a roll goes. With nothing said, all nodes of a stage switch at once when all have the new
    content.

    `canary` nodes go first. A node is through its gate when it was ACTIVE for `health_s` seconds
    after its switch. `batch` nodes are through it before the next ones go; of them
    `max_unavailable` switch at a time. Shares are of a stage's nodes. A node has `switch_s` to
    switch.
    """

    batch: Amount | None = None
    max_unavailable: Amount | None = None
    canary: int = 0
    health_s: float = 0.0
    on_failure: OnFailure = "rollback"
    on_stage_failure: OnStageFailure = "skip"
    switch_s: float = SWITCH_S


class NodeRoll(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One node of a roll. `target` and `before` number the roll's image sets; `batch` is 0 as long
    as its turn has not come.

    `deadline` ends what it does now. `absent`: it was to be in sync and is not. `tries` counts
    failed attempts to stage. `later`: it was passed over because it is not up; once the roll is
    done it boots the new images. `broken`: it is on its way back because it has failed itself, not
    because another one of its batch has. `unproven`: a health check has yet to pass. `takes_s` is
    how long the node itself may take to switch, if that is more than the plan's `switch_s`.
    `quick`: it staged in STAGE_QUICK_S.
    """

    name: str
    stage: int
    target: int
    before: int
    state: NodePhase = NodePhase.WAITING
    batch: int = 0
    deadline: float | None = None
    reason: str = ""
    absent: bool = False
    tries: int = 0
    later: bool = False
    broken: bool = False
    unproven: bool = False
    takes_s: float = 0.0
    quick: bool = False


class Roll(msgspec.Struct, frozen=True):
    """A roll, by node id. `sets` are the image sets that it takes nodes to, or back to.
    `inventory`: an inventory that was applied asks for it, and not a person for a while. One of
    boot sets or agents has `boots`, their names, instead of `sets`. `after` is the newest event
    before it began: a clock may step in the middle of a roll. What follows from the nodes is
    carried along, as to look at all of 100,000 takes long: `stands`, how many are how ({}: not
    counted yet), `here`, the same of the present batch, and `wake`, before which none has a
    deadline. `starts`: it was asked to begin at this time, in seconds since the epoch; until then
    it is SCHEDULED, and has the image that it replaces in `replaces`, and in `token` the id of the
    token by which it was asked for, "" without one."""

    id: int
    by: str
    at: float
    image: str
    plan: Plan
    stages: tuple[str, ...]
    sets: tuple[tuple[WantedImage, ...], ...]
    nodes: dict[str, NodeRoll]
    state: Phase = Phase.STAGING
    stage: int = 0
    batch: int = 0
    reason: str = ""
    ended: float | None = None
    inventory: bool = False
    kind: Kind = Kind.IMAGES
    boots: tuple[str, ...] = ()
    after: int = 0
    stands: dict[str, int] = {}
    wake: float = 0.0
    here: dict[str, int] = {}
    starts: float | None = None
    replaces: str | None = None
    token: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER

    @property
    def scheduled(self) -> bool:
        """Whether it has yet to begin."""
        return self.state is Phase.SCHEDULED


class NodeFacts(msgspec.Struct, frozen=True, gc=False):
    """What is known of a node now, as far as a roll asks.

    `up`: it is wanted up. `held`: the head has started anew, and the node's agent has not come back
    yet. `acked`: the agent acts on the newest desired state, so that `image` is about that.
    `target` and `before`: which image set is wanted of it. `unproven`: an image that is wanted has
    a health check which has not passed yet. `stopped`: why people want it left alone. `wrong`: why
    its switch has failed, whatever else is seen of it.
    """

    up: bool = True
    present: bool = True
    sync: bool = True
    held: bool = False
    busy: bool = False
    image: str = "ACTIVE"
    acked: bool = True
    target: bool = False
    before: bool = True
    staged: bool = False
    stage_error: str = ""
    unhealthy: str = ""
    unproven: bool = False
    quarantine: str = ""
    stopped: str = ""
    wrong: str = ""

    @property
    def lost(self) -> bool:
        """Whether its agent is away, and not because the head was."""
        return not self.sync and not self.held


class Stage(msgspec.Struct, frozen=True, gc=False):
    """Have the node fetch the new content."""

    node: str


class Switch(msgspec.Struct, frozen=True, gc=False):
    """Want the new image set of the node."""

    node: str


class Revert(msgspec.Struct, frozen=True, gc=False):
    """Want the image set from before of the node. `keep`: its turn comes again, so the new content
    stays staged."""

    node: str
    keep: bool = False


class Unstage(msgspec.Struct, frozen=True, gc=False):
    """The node need not keep new content any longer."""

    node: str


class Note(msgspec.Struct, frozen=True):
    """Something for the history: of a node, or of the head when `node` is ""."""

    node: str
    kind: EventKind
    text: str
    severity: Severity | None = None


Action: TypeAlias = Stage | Switch | Revert | Unstage | Note


_LATER = "laterroll/"
_PREFIXES = {Kind.IMAGES: "roll/", Kind.BOOT: "bootroll/", Kind.AGENT: "bootroll/"}
"""Rolls of boot sets and agents stand apart: an older head would take them for rolls of images. So
do those that have yet to begin, which one before them knew nothing of."""
DOCUMENTS = (_LATER, "roll/", "bootroll/")
"""How the names of the documents begin that rolls stand in; one that has begun counts more."""


def document_of(roll: Roll) -> str:
    """The document that a roll stands in."""
    return f"{_LATER if roll.scheduled else _PREFIXES[roll.kind]}{roll.id}"


def scheduled_document(roll: Roll) -> str:
    """The one that it stood in before it began."""
    return f"{_LATER}{roll.id}"


def read_document(key: str, data: bytes) -> Roll:
    """A roll out of its document. Raises InputError if it is damaged."""
    try:
        return msgspec.msgpack.decode(data, type=Roll)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {key} in the database: {error}", hint=RESTORE_HINT) from None


def counted(nodes: Iterable[NodeRoll]) -> dict[str, int]:
    """How many nodes are how."""
    return {str(state): count for state, count in Counter([n.state for n in nodes]).items()}


def describe(roll: Roll) -> dict[str, Any]:
    """A roll's parameters and how far it is, JSON-ready, without its nodes one by one."""
    stands = roll.stands or counted(roll.nodes.values())
    return {
        "id": roll.id,
        "by": roll.by,
        "at": roll.at,
        "image": roll.image,
        "state": roll.state.value,
        "reason": roll.reason,
        "kind": roll.kind.value,
        "counts": {state: count for state, count in stands.items() if count},
        "ended": roll.ended,
        "starts": roll.starts,
        "batch": roll.batch,
        "stage": roll.stages[min(roll.stage, len(roll.stages) - 1)],
        "stages": list(roll.stages),
        "nodes_total": len(roll.nodes),
        "plan": plan_view(roll.plan),
    }


def plan_view(plan: Plan) -> dict[str, Any]:
    """How a roll goes, JSON-ready."""
    return {
        "batch": plan.batch and str(plan.batch),
        "max_unavailable": plan.max_unavailable and str(plan.max_unavailable),
        "canary": plan.canary,
        "health_timeout_s": plan.health_s,
        "on_failure": plan.on_failure,
        "on_stage_failure": plan.on_stage_failure,
    }
