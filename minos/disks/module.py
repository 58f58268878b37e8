"""Disks as a module of the head: a key of the inventory, and the variable `disk` of nodes that have
it. It has no process."""

from __future__ import annotations

from layercake.moduleapi.module import EVERY, Module, Part
from minos.disks.inventory import Disks, complete, node_document, view, warnings
from minos.disks.mutations import DISK, MUTATIONS

MODULE = Module(
    name="disks",
    doc="The nodes' own disks: partitions, RAIDs, encryption and file systems.",
    part=Part(Disks, complete, view=view, warnings=warnings, at_boot=EVERY),
    tells=node_document,
    variables=(DISK,),
    mutations=MUTATIONS,
    with_part=True,
    before={"image-start": {"disk": "READY"}, "image-retry": {"disk": "READY"}},
    unless={"detach": {"disk": "READY"}},
)
