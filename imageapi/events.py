"""The events that a node's images tell, and who they are told to."""

from __future__ import annotations

from typing import Any, Protocol

from layercake.kraken.events import Bearing, EventKind, Severity

DEBUG = Severity.DEBUG
INFO = Severity.INFO
WARNING = Severity.WARNING
ERROR = Severity.ERROR


class EventSink(Protocol):
    """Where the node's history goes. May be called from any thread. `severity` None is the kind's
    own."""

    def __call__(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None: ...


def unheard(kind: EventKind, text: str, severity: Severity | None = None, **data: Any) -> None:
    """An EventSink for whoever has nobody to tell."""


CONTAINERS = EventKind(
    "image.containers",
    DEBUG,
    "How each container of the image set is now.",
    bearing=Bearing.STANDING,
)
PREPARED = EventKind(
    "image.prepared",
    DEBUG,
    "A container is made, all but its program's start; with the seconds that it took.",
)
STARTED = EventKind("image.started", INFO, "A container's program was started.")
ADOPTED = EventKind(
    "image.adopted", INFO, "An agent that started anew took over a container that had run on."
)
ROLLED = EventKind(
    "image.rolled", INFO, "One image took the place of another; gap_ms is how long neither ran."
)
STOPPED = EventKind("image.stopped", INFO, "A container was stopped because it is not wanted.")
KILLED = EventKind(
    "image.killed", WARNING, "A container did not end within its stop_timeout_s and was killed."
)
EXITED = EventKind(
    "container.exited",
    ERROR,
    "A container's init ended by itself; info if that was all it had to do.",
)
HEALTHY = EventKind("image.healthy", INFO, "A container's health check succeeds now.", urgent=True)
UNHEALTHY = EventKind(
    "image.unhealthy", ERROR, "A container's health check failed too often in a row.", urgent=True
)
DEGRADED = EventKind(
    "image.degraded",
    WARNING,
    "The systemd of a container that was healthy has failed units, or does not answer; "
    "nothing follows from it.",
    urgent=True,
)
WAITING = EventKind(
    "image.waiting", WARNING, "An image is not started, because one that it depends on is not up."
)
FAILED = EventKind("image.error", ERROR, "An image could not be prepared, started or stopped.")
MISMATCH = EventKind(
    "image.digest-mismatch",
    ERROR,
    "An image's content is not what its digest or its hash tree says.",
)
UNSIGNED = EventKind(
    "image.unsigned",
    ERROR,
    "An image is not started: the head that the node has joined has not signed it.",
)
RETRY = EventKind("image.retry", WARNING, "An image has failed and is tried again after a pause.")
FATAL = EventKind("image.fatal", ERROR, "An image is given up: its attempts are used up.")
STAGED = EventKind(
    "image.staged", INFO, "An image that is wanted next is ready on the node.", urgent=True
)
STAGE_FAILED = EventKind(
    "image.stage-failed",
    WARNING,
    "An image that is wanted next could not be made ready.",
    urgent=True,
)
REMAINS = EventKind(
    "image.remains", ERROR, "Something of an image could not be taken away; it is tried again."
)
LAZY_UNMOUNT = EventKind(
    "image.lazy-unmount", WARNING, "A mount was busy, and goes when its last user does."
)
DEVICE_LOST = EventKind(
    "image.device-lost",
    WARNING,
    "An iSCSI target does not answer; it is logged in to again when it does.",
)
DEVICE_BACK = EventKind("image.device-back", INFO, "An iSCSI target was logged in to again.")

EVENTS = (
    CONTAINERS,
    PREPARED,
    STARTED,
    ADOPTED,
    ROLLED,
    STOPPED,
    KILLED,
    EXITED,
    HEALTHY,
    UNHEALTHY,
    DEGRADED,
    WAITING,
    FAILED,
    MISMATCH,
    UNSIGNED,
    RETRY,
    FATAL,
    STAGED,
    STAGE_FAILED,
    REMAINS,
    LAZY_UNMOUNT,
    DEVICE_LOST,
    DEVICE_BACK,
)
