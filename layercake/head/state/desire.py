"""What is wanted of a node, and how that is put down: the one place where a desired image set changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from imageapi.spec.order import start_order
from layercake.head.state.engine import Engine
from layercake.head.state.store import Record, Store, WantedImage
from layercake.kraken.converge import DesiredChanged
from layercake.kraken.variables import Goal


def goal_of(record: Record, state: str) -> Goal:
    """The goal for a desired state: up is powered, in sync and with its images running; off is off."""
    layout = record.planner.layout
    if state == "off":
        return layout.goal({"power": "OFF"})
    return layout.goal({"power": "ON", "run": "SYNC", "image": "ACTIVE" if record.wanted else "IDLE"})


def check_set(images: Iterable[WantedImage]) -> None:
    """Raises InputError if the images could never be started together: a dependency that is missing, or a circle."""
    start_order({image.name: image.container.get("depends") or () for image in images})


def want(store: Store, engine: Engine, record: Record, images: tuple[WantedImage, ...]) -> None:
    """Wants an image set of a node and lets the engine know. The caller has the node told (Sync.push)."""
    fresh, record.wanted = images != record.wanted, images
    names = tuple(i.name for i in images)
    if record.node.images != names:
        record.node = dataclasses.replace(record.node, images=names)
    record.cfg_revision += 1
    store.mark(record)
    engine.post(record, DesiredChanged(goal_of(record, record.node.state), fresh))


def want_staged(store: Store, record: Record, images: tuple[WantedImage, ...]) -> None:
    """Wants a node to have images ready, beside what it runs. What it said it has ready of other ones counts no more."""
    record.stage, record.stage_error = images, ""
    record.staged = record.staged & {i.digest for i in images}
    record.cfg_revision += 1
    store.mark(record)
