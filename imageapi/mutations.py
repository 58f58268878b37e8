"""The image state of a node and the steps that change it. The node carries them all out itself.

The head imports this file for its state graph, so nothing of imageapi.node is imported here: a
handler is given what it works on, a NodeContext, made in layercake/node/wiring.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from imageapi.spec.state import ImageState
from layercake.kraken.mutation import Mutation, Where, mutation
from layercake.kraken.variables import Variable

Found = Mapping[str, str]
Interrupt = Callable[[], bool]
"""Whether the engine has changed its mind."""


class ImageSet(Protocol):
    """What the handlers need of the node's images."""

    def adopt(self) -> str:
        """Finds out what runs."""

    def reconcile(self, interrupted: Interrupt) -> str:
        """Makes what runs be what is wanted."""

    def retry(self, interrupted: Interrupt) -> str:
        """The same, once the next attempt is due."""

    def stop_all(self) -> str:
        """Ends all."""


class NodeContext(Protocol):
    """What a handler works on."""

    @property
    def images(self) -> ImageSet:
        """The node's images."""

    @property
    def interrupted(self) -> Interrupt:
        """Whether to give up."""

    def busy(self) -> bool:
        """Whether somebody on the node said that it must not be interrupted."""

    def tell_all(self) -> None:
        """Waits, a short while at most, until the head has heard what happened here."""


VARIABLES = (
    Variable(
        "image",
        tuple(state.value for state in ImageState),
        "what runs: nothing, what is wanted, something else; ERROR is tried again, FATAL is given "
        "up",
    ),
    Variable(
        "busy",
        ("UNKNOWN", "FREE", "BUSY"),
        "whether the node does work that must not be interrupted",
    ),
)

_IN_SYNC = {"run": "SYNC"}
_BUSY = {"busy": "BUSY"}


@mutation(
    "image-discover",
    changes={"image": ("UNKNOWN", "IDLE")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=20,
)
def image_discover(context: NodeContext) -> Found:
    """Finds out which images run, and takes over what an earlier agent left."""
    return {"image": context.images.adopt()}


@mutation(
    "busy-discover",
    changes={"busy": ("UNKNOWN", "FREE")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=10,
)
def busy_discover(context: NodeContext) -> Found:
    """Asks whether the node may be interrupted."""
    return {"busy": "BUSY" if context.busy() else "FREE"}


@mutation(
    "image-start",
    changes={"image": ("IDLE", "ACTIVE")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=300,
    on_timeout=("image", "ERROR"),
)
def image_start(context: NodeContext) -> Found:
    """Fetches and starts the wanted images."""
    return {"image": context.images.reconcile(context.interrupted)}


@mutation(
    "image-stop",
    changes={"image": ("ACTIVE", "IDLE")},
    requires=_IN_SYNC,
    excludes=_BUSY,
    where=Where.NODE,
    timeout=60,
    on_timeout=("image", "ERROR"),
)
def image_stop(context: NodeContext) -> Found:
    """Stops the images."""
    return {"image": context.images.stop_all()}


@mutation(
    "image-update",
    changes={"image": ("UPDATE", "ACTIVE")},
    requires=_IN_SYNC,
    excludes=_BUSY,
    where=Where.NODE,
    timeout=300,
    on_timeout=("image", "ERROR"),
)
def image_update(context: NodeContext) -> Found:
    """Rolls to the wanted images: prepares the new ones, then stops the old and starts the new."""
    return {"image": context.images.reconcile(context.interrupted)}


@mutation(
    "image-drop",
    changes={"image": ("UPDATE", "IDLE")},
    requires=_IN_SYNC,
    excludes=_BUSY,
    where=Where.NODE,
    timeout=60,
    on_timeout=("image", "ERROR"),
)
def image_drop(context: NodeContext) -> Found:
    """Stops images that are not wanted any more."""
    return {"image": context.images.stop_all()}


@mutation(
    "image-retry",
    changes={"image": ("ERROR", "ACTIVE")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=300,
    on_timeout=("image", "FATAL"),
)
def image_retry(context: NodeContext) -> Found:
    """Tries again after a failure, once the back-off is over."""
    return {"image": context.images.retry(context.interrupted)}


@mutation(
    "image-clear",
    changes={"image": ("ERROR", "IDLE")},
    requires=_IN_SYNC,
    where=Where.NODE,
    timeout=60,
    on_timeout=("image", "FATAL"),
)
def image_clear(context: NodeContext) -> Found:
    """Removes failed images."""
    return {"image": context.images.stop_all()}


@mutation(
    "detach",
    changes={"run": ("SYNC", "INIT")},
    requires={"image": "IDLE"},
    where=Where.NODE,
    timeout=10,
)
def detach(context: NodeContext) -> Found:
    """Says that nothing runs here any more: the machine may be switched off."""
    context.tell_all()
    return {"run": "INIT"}


MUTATIONS: tuple[Mutation, ...] = (
    image_discover,
    busy_discover,
    image_start,
    image_stop,
    image_update,
    image_drop,
    image_retry,
    image_clear,
    detach,
)
