"""What the engine knows of a node's disks, of nodes that have `disks` in the inventory. The node
carries all of it out.

The head imports this file for its state graph, so a handler is given what it works on
(layercake/node/wiring.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from layercake.kraken.mutation import ENDLESS, Mutation, Where, mutation
from layercake.kraken.variables import UNKNOWN, Variable

Found = Mapping[str, str]
MONTH_S = 30 * 86400.0


class Disks(Protocol):
    """What the handlers need of the node's disks (minos.agent.disks.manager)."""

    def discover(self) -> str:
        """Finds out how they are, and brings up what was made before."""

    def prepare(self) -> str:
        """Makes what is not there yet."""

    def wait(self, interrupted: Callable[[], bool]) -> str:
        """Waits until what was in the way is out of it."""

    def close(self) -> str:
        """Takes down what is up, so that the machine may be switched off."""


class DiskContext(Protocol):
    """What a handler works on."""

    @property
    def disks(self) -> Disks:
        """The node's disks."""

    @property
    def interrupted(self) -> Callable[[], bool]:
        """Whether to give up."""


DISK = Variable(
    "disk",
    (UNKNOWN, "BLANK", "FOREIGN", "READY", "ERROR"),
    "the node's own disks: to be made, holding something that is not ours, ready, or not as the "
    "inventory has them",
)
_IN_SYNC = {"run": "SYNC"}


@mutation(
    "disk-discover",
    changes={"disk": (UNKNOWN, "READY")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=300,
    on_timeout=("disk", "ERROR"),
)
def disk_discover(context: DiskContext) -> Found:
    """Looks at the node's disks, and brings up what was made on them before."""
    return {"disk": context.disks.discover()}


@mutation(
    "disk-prepare",
    changes={"disk": ("BLANK", "READY")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=1800,
    on_timeout=("disk", "ERROR"),
)
def disk_prepare(context: DiskContext) -> Found:
    """Makes partitions, RAIDs, volumes and file systems, and mounts them."""
    return {"disk": context.disks.prepare()}


@mutation(
    "disk-wait",
    changes={"disk": ("FOREIGN", "BLANK")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=MONTH_S,
    retries=ENDLESS,
)
def disk_wait(context: DiskContext) -> Found:
    """Waits for a person's word: a disk holds something that is not of this layout."""
    return {"disk": context.disks.wait(context.interrupted)}


@mutation(
    "disk-retry",
    changes={"disk": ("ERROR", "BLANK")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=MONTH_S,
    retries=ENDLESS,
)
def disk_retry(context: DiskContext) -> Found:
    """Waits until the disks or the inventory are other ones."""
    return {"disk": context.disks.wait(context.interrupted)}


@mutation(
    "disk-close",
    changes={"disk": ("READY", "BLANK")},
    requires={**_IN_SYNC, "image": "IDLE"},
    where=Where.NODE,
    timeout=600,
)
def disk_close(context: DiskContext) -> Found:
    """Unmounts the node's disks, and writes what is not written yet."""
    return {"disk": context.disks.close()}


MUTATIONS: tuple[Mutation, ...] = (disk_discover, disk_prepare, disk_wait, disk_retry, disk_close)
