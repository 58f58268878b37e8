"""What is answered about the head itself and its guard."""

from __future__ import annotations

import msgspec


class Certificate(msgspec.Struct):
    """A certificate, until when it is good (seconds since the epoch), and for how many days
    more."""

    what: str
    until: float
    days: float


class NodeCounts(msgspec.Struct):
    """How many nodes are how."""

    total: int
    converged: int
    working: int
    quarantined: int
    blocked: int
    asking: int


class DatabaseShown(msgspec.Struct):
    """Whether the database can be written, and how many events wait for that."""

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


class StopShown(msgspec.Struct):
    """A freeze or maintenance; times are seconds since the epoch, `until` null is until it is
    ended."""

    reason: str
    by: str
    since: float
    until: float | None
    ended: float | None
    ended_by: str


class OutageShown(msgspec.Struct):
    """A domain of which so much is silent that nothing is done to its nodes; "" is the site."""

    domain: str
    where: str
    seconds: float
    silent: int
    members: int
    nodes: list[str]


class BootsShown(msgspec.Struct):
    """Boots: how many are under way, how many wait for their turn, how long one takes, and until
    all are up; in seconds, null as long as nobody knows."""

    booting: int
    waiting: int
    usual_s: float | None
    left_s: float | None


class GuardShown(msgspec.Struct):
    """The freeze of the site, outages, and how many nodes wait or are silent."""

    frozen: StopShown | None
    outages: list[OutageShown]
    waiting: int
    silent: int
    boots: BootsShown


class HeadStatus(msgspec.Struct):
    """How the head is. Times in seconds."""

    version: str
    epoch: int
    uptime_s: float
    revision: int
    nodes: NodeCounts
    database: DatabaseShown
    loop: LoopShown
    services: list[ServiceShown]
    sync: dict[str, int]
    guard: GuardShown
    certificates: list[Certificate]
    warnings: list[str]


class SessionShown(msgspec.Struct):
    """Who asks. `groups` null is the whole site, `expires` (seconds since the epoch) null is never;
    `exec`: the right to run commands on nodes, and to type on their consoles."""

    name: str
    role: str
    groups: list[str] | None
    exec: bool
    expires: float | None
    version: str


class TicketShown(msgspec.Struct):
    """A link, and for how many seconds it is good."""

    url: str
    seconds: float


class AuthorityShown(msgspec.Struct):
    """The head's certificates; while the authority is being replaced, the nodes and boot sets that
    do not know the next one."""

    certificates: list[Certificate]
    changing: bool
    nodes: list[str]
    boot_sets: list[str]


class Maintenance(StopShown, kw_only=True):
    """The maintenance of a node."""

    node: str


class MaintenanceList(msgspec.Struct):
    """Maintenances, newest first."""

    maintenances: list[Maintenance]


class Domain(msgspec.Struct):
    """The domain whose outage was ended."""

    domain: str
