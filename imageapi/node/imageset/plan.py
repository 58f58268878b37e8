"""What state an image set is in, and what must change: pure functions over facts."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imageapi.node.container.process import NO_PROCESS, Process
from imageapi.spec.container import ContainerSpec
from imageapi.spec.health import DEGRADED, HEALTHY
from imageapi.spec.image import ImageSpec
from imageapi.spec.state import ImageState, LastError
from layercake.kraken.backoff import backoff

ATTEMPTS = 3
BACKOFF = 5.0
BACKOFF_MOST = 20.0
"""Seconds after the first failure of an image, and at most."""

ERROR_LIMIT = 500
STEADY = 60.0
"""A container that ran this many seconds was sound: its earlier failures are forgotten."""


class Phase(enum.Enum):
    """Where one instance is in its life."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    UNHEALTHY = "unhealthy"
    EXITED = "ended unexpectedly"
    FINISHED = "finished"


@dataclass(slots=True)
class Instance:
    """One image as it is on this node: a container with its mounts. `since` is when it started,
    CLOCK_BOOTTIME seconds."""

    id: str
    spec: ImageSpec
    phase: Phase
    process: Process = NO_PROCESS
    since: float = 0.0
    health: str = ""
    """"" without a health check, else one of the words of imageapi.spec.health."""
    trouble: str = ""
    """What is wrong with it while it is degraded."""
    stale: bool = False
    """Another instance is to take its place, though it is what is wanted."""

    @property
    def up(self) -> bool:
        """Whether others may depend on it: it runs and is not known to be unwell, or has done what
        it was there for."""
        return self.phase is Phase.FINISHED or (
            self.phase is Phase.RUNNING and self.health in ("", HEALTHY, DEGRADED)
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one image of the present set. `count` attempts have failed in a row; the
    next is due at `retry_at`, 0 while it runs (again)."""

    count: int = 0
    text: str = ""
    retry_at: float = 0.0
    cause: LastError = LastError.INIT_FAIL

    @property
    def open(self) -> bool:
        """Whether it has yet to be made good."""
        return bool(self.count and self.retry_at)

    @property
    def error(self) -> LastError:
        """The cause, or that the attempts are used up."""
        if not self.count:
            return LastError.NOERROR
        return self.cause.when_given_up if self.fatal else self.cause

    @property
    def fatal(self) -> bool:
        """Whether the attempts are used up."""
        return self.open and self.count >= ATTEMPTS


NO_FAILURE = Failure()


def next_failure(
    before: Failure, cause: LastError, text: str, now: float, *, steady: bool, final: bool
) -> Failure:
    """One failure more. An image that had run steadily is tried again at once, a `final` failure
    never."""
    count = ATTEMPTS if final else 1 if steady else before.count + 1
    return Failure(
        count, text, now if steady else now + backoff(count, BACKOFF, BACKOFF_MOST), cause
    )


def identity(spec: ImageSpec) -> tuple[str, str, ContainerSpec]:
    """What makes two specs the same thing to run; where it is fetched from does not matter."""
    return spec.name, spec.digest, spec.container


def restarts(spec: ContainerSpec, status: int | None) -> bool:
    """Whether the end of its init with this exit status calls for another start. An unknown status
    counts as a failure."""
    return spec.restart == "always" or (spec.restart == "on-failure" and status != 0)


def difference(
    wanted: Iterable[ImageSpec], instances: Iterable[Instance]
) -> tuple[list[Instance], list[ImageSpec]]:
    """(instances that must go, specs that must be started)."""
    wanted = list(wanted)
    missing = {identity(spec): spec for spec in wanted}
    old = []
    for instance in instances:
        key = identity(instance.spec)
        if (
            key in missing
            and instance.phase in (Phase.RUNNING, Phase.FINISHED)
            and not instance.stale
        ):
            del missing[key]
        else:
            old.append(instance)
    return old, [spec for spec in wanted if identity(spec) in missing]


def successors(
    old: Iterable[Instance], fresh: Iterable[Instance]
) -> tuple[list[tuple[Instance, Instance | None]], list[Instance]]:
    """Which new instance takes the place of which old one: ([(old, its successor)], [new ones that
    follow nobody]).

    The same name first. A roll to an image of another name leaves the rest, which is paired in
    order.
    """
    free = {instance.spec.name: instance for instance in fresh}
    pairs = [(instance, free.pop(instance.spec.name, None)) for instance in old]
    rest = [instance for instance in fresh if instance.spec.name in free]
    pairs = [
        (instance, successor or (rest.pop(0) if rest else None)) for instance, successor in pairs
    ]
    return pairs, rest


def state(
    wanted: Iterable[ImageSpec], instances: Iterable[Instance], failures: Iterable[Failure]
) -> ImageState:
    """The value of the variable `image`: the worst of the images'."""
    failures = list(failures)
    instances = list(instances)
    if any(failure.fatal for failure in failures):
        return ImageState.FATAL
    if any(failure.open for failure in failures):
        return ImageState.ERROR
    present = [
        i
        for i in instances
        if i.phase in (Phase.RUNNING, Phase.FINISHED, Phase.STOPPING, Phase.UNHEALTHY)
    ]
    if not present:
        return ImageState.IDLE
    old, new = difference(wanted, present)
    return ImageState.UPDATE if old or new or not all(i.up for i in present) else ImageState.ACTIVE


CONTAINER_STATES = {
    Phase.PREPARING: "creating",
    Phase.PREPARED: "created",
    Phase.RUNNING: "running",
    Phase.UNHEALTHY: "running",
    Phase.STOPPING: "stopping",
    Phase.EXITED: "exited",
    Phase.FINISHED: "exited",
}


def view(
    spec: ImageSpec, instance: Instance | None, failure: Failure, now: float
) -> dict[str, Any]:
    """One image of the set as people are shown it. Without an instance it is "waiting", or "dead"
    once it was given up."""
    state = _shown_state(instance, failure)
    retries = failure.open and not failure.fatal
    record = {
        "name": spec.name,
        "digest": spec.digest,
        "state": state,
        "health": "",
        "pid": 0,
        "started_s": None,
        "retries": failure.count,
        "last_error": failure.error.name,
        "error": failure.text[:ERROR_LIMIT],
        "retry_in_s": round(max(0.0, failure.retry_at - now), 1) if retries else None,
    }
    if instance is None:
        return record
    return record | {
        "health": instance.health,
        "pid": instance.process.pid if state in ("running", "stopping") else 0,
        "started_s": round(now - instance.since, 1) if instance.since else None,
        "error": (failure.text or instance.trouble)[:ERROR_LIMIT],
    }


def _shown_state(instance: Instance | None, failure: Failure) -> str:
    state = "waiting" if instance is None else CONTAINER_STATES[instance.phase]
    return "dead" if failure.fatal and state != "running" else state


def instance_id(spec: ImageSpec, counter: int) -> str:
    """A name for one instance: readable, and never that of another instance, whatever the image is
    called."""
    slug = re.sub(r"[^A-Za-z0-9.-]", "_", spec.name)[:48]
    return f"{slug}-{spec.hex[:8]}-{counter}"
