"""Tasks as a module of the head: a key of the inventory, told to the node. It has no process."""

from __future__ import annotations

from layercake.moduleapi.module import EVERY, Module, Part
from minos.tasks.inventory import Tasks, complete, node_document, view

MODULE = Module(
    name="uinit",
    doc="What minOS does on a node before its images start.",
    part=Part(Tasks, complete, view=view, at_boot=EVERY),
    tells=node_document,
)
