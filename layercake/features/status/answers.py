"""What is answered about the head itself, and of what happened since yesterday."""

from __future__ import annotations

import msgspec

from layercake.agents.pki import CertificateAge
from layercake.features.guard.answers import GuardShown, OutageShown
from layercake.features.rolls.answers import RollShown
from layercake.fleet.guard_state import Stop


class NodeCounts(msgspec.Struct):
    """How many nodes are how. `maintenance`: as wanted, and a person works on them; `waiting`: a
    step failed, and is tried again; `held`: the head holds back, as on a frozen site; `silent`:
    they fell silent in an outage; `unwell`: as wanted, but for the health of a container."""

    total: int
    converged: int
    maintenance: int
    working: int
    waiting: int
    held: int
    silent: int
    unwell: int
    quarantined: int
    blocked: int
    asking: int


class WriterShown(msgspec.Struct):
    """Whether the database, or the inventory's history, can be written, else why not and for how
    many seconds; and how many events, or changes, wait for that."""

    well: bool
    trouble: str
    waiting: int
    since_s: float | None


class LoopShown(msgspec.Struct):
    """Whether the head is in time: for how long its loop was held up within the last minute, the
    longest at once, and since when that is trouble. `stood_s`: how long it stood still since its
    start, as one that was suspended."""

    well: bool
    trouble: str
    late_s: float
    most_s: float
    stood_s: float
    since_s: float | None


class ServiceShown(msgspec.Struct):
    """A module's process. `health` is what it says of itself."""

    name: str
    state: str
    pid: int | None
    restarts: int
    health: str | None
    since_s: float | None


class HeadsBrief(msgspec.Struct, frozen=True):
    """The heads of a site with several, in words: what each is, the one that leads first; why no
    head may change anything now, "" if this one may; and what has been wrong for a while, each with
    what helps."""

    roles: list[str] = []
    refuses: str = ""
    troubles: list[str] = []


class HeadStatus(msgspec.Struct):
    """How the head is. Times in seconds. `log_levels` are those that somebody has set. `heads` is
    of a site with several."""

    version: str
    epoch: int
    uptime_s: float
    revision: int
    nodes: NodeCounts
    database: WriterShown
    history: WriterShown
    loop: LoopShown
    services: list[ServiceShown]
    sync: dict[str, int]
    guard: GuardShown
    certificates: list[CertificateAge]
    warnings: list[str]
    log_levels: dict[str, str] = {}
    heads: HeadsBrief = HeadsBrief()


class ReportLine(msgspec.Struct):
    """A kind of event: how often it happened, when last (seconds since the epoch), how often to
    which node ("" is the head; of what is graver than info), what the kind means, and what the last
    one said, of which node."""

    kind: str
    count: int
    last: float
    nodes: dict[str, int]
    meaning: str
    node: str
    text: str


class SiteReport(msgspec.Struct):
    """What happened between two times (seconds since the epoch), by section, and how the site is
    now: nodes by status, outages, a freeze, the database, certificates that end soon. `rolls` are
    those that went on in that time."""

    since: float
    until: float
    head: str
    nodes: dict[str, int]
    outages: list[OutageShown]
    frozen: Stop | None
    database: WriterShown
    certificates: list[CertificateAge]
    rolls: list[RollShown]
    sections: dict[str, list[ReportLine]]
