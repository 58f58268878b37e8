"""What state an image set is in, and what must change: pure functions over facts."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from imageapi.node.container import NO_PROCESS, Process
from imageapi.node.spec import ContainerSpec, ImageSpec

ATTEMPTS = 3
BACKOFF = 5.0
STEADY = 60.0
"""A container that ran this many seconds was sound: its earlier failures are forgotten."""


class Phase(enum.Enum):
    """Where one instance is in its life."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "ended unexpectedly"
    FINISHED = "finished"


@dataclass(slots=True)
class Instance:
    """One image as it is on this node: a container with its mounts. `since` is when it started, CLOCK_BOOTTIME seconds."""

    id: str
    spec: ImageSpec
    phase: Phase
    process: Process = NO_PROCESS
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with the present image set. `count` attempts have failed; the next one is due at `retry_at`."""

    count: int = 0
    text: str = ""
    retry_at: float = 0.0

    @property
    def fatal(self) -> bool:
        """Whether the attempts are used up."""
        return self.count >= ATTEMPTS


NO_FAILURE = Failure()


def identity(spec: ImageSpec) -> tuple[str, str, ContainerSpec]:
    """What makes two specs the same thing to run; where it is fetched from does not matter."""
    return spec.name, spec.digest, spec.container


def backoff(failures: int) -> float:
    """Seconds to wait after the nth failure (n from 1): 5, 10, 20."""
    return float(BACKOFF * 2 ** (failures - 1))


def restarts(spec: ContainerSpec, status: int | None) -> bool:
    """Whether the end of its init with this exit status calls for another start. An unknown status counts as a failure."""
    return spec.restart == "always" or (spec.restart == "on-failure" and status != 0)


def difference(wanted: Iterable[ImageSpec], instances: Iterable[Instance]) -> tuple[list[Instance], list[ImageSpec]]:
    """(instances that must go, specs that must be started)."""
    wanted = list(wanted)
    missing = {identity(spec): spec for spec in wanted}
    old = []
    for instance in instances:
        key = identity(instance.spec)
        if key in missing and instance.phase in (Phase.RUNNING, Phase.FINISHED):
            del missing[key]
        else:
            old.append(instance)
    return old, [spec for spec in wanted if identity(spec) in missing]


def successors(old: Iterable[Instance], fresh: Iterable[Instance]) -> tuple[list[tuple[Instance, Instance | None]], list[Instance]]:
    """Which new instance takes the place of which old one: ([(old, its successor)], [new ones that follow nobody]).

    The same name first. A roll to an image of another name leaves the rest, which is paired in order.
    """
    free = {instance.spec.name: instance for instance in fresh}
    pairs = [(instance, free.pop(instance.spec.name, None)) for instance in old]
    rest = [instance for instance in fresh if instance.spec.name in free]
    pairs = [(instance, successor or (rest.pop(0) if rest else None)) for instance, successor in pairs]
    return pairs, rest


def state(wanted: Iterable[ImageSpec], instances: Iterable[Instance], failure: Failure) -> str:
    """The value of the variable `image`."""
    if failure.fatal:
        return "FATAL"
    if failure.count and failure.retry_at:
        return "ERROR"
    present = [i for i in instances if i.phase in (Phase.RUNNING, Phase.FINISHED, Phase.STOPPING)]
    if not present:
        return "IDLE"
    old, new = difference(wanted, present)
    return "UPDATE" if old or new else "ACTIVE"
