"""What is answered about freezes, outages and maintenances."""

from __future__ import annotations

import msgspec

from layercake.fleet.guard_state import Stop


class OutageShown(msgspec.Struct):
    """A domain of which so much is silent that nothing is done to its nodes; "" is the site.
    `domains` are those in it that are dark too."""

    domain: str
    where: str
    domains: list[str]
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

    frozen: Stop | None
    outages: list[OutageShown]
    waiting: int
    silent: int
    boots: BootsShown


class Maintenance(Stop, frozen=True, kw_only=True):
    """The maintenance of a node."""

    node: str


class MaintenanceEnded(msgspec.Struct):
    """The nodes whose maintenance is over, and which of them stay off because they are wanted
    off."""

    nodes: list[str]
    off: list[str]


class MaintenanceList(msgspec.Struct):
    """Maintenances, newest first."""

    maintenances: list[Maintenance]


class Domain(msgspec.Struct):
    """The domain whose outage was ended."""

    domain: str
