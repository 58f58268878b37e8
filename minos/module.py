"""minOS as a module of the head: what its agent is told of a node besides its images, and what it
tells. It has no process."""

from __future__ import annotations

from layercake.moduleapi.module import Module, Part
from minos.events import EVENTS
from minos.inventory import Interfaces, complete, node_document, suits, unique

MODULE = Module(
    name="minos",
    doc="The nodes' small operating system: their interfaces, and what their agents tell.",
    part=Part(Interfaces, complete, unique, suits=suits),
    tells=node_document,
    events=EVENTS,
)
