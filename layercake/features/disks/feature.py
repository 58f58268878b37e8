"""The nodes' own disks: what nodes say of them, the words of persons, and the keys."""

from __future__ import annotations

from functools import partial

import minos.events
from layercake.features.boots.boot_sets import BootSets
from layercake.features.disks.node_disks import NodeDisks
from layercake.features.disks.node_routes import DiskKeyRequests
from layercake.features.images.document import ImageAddresses
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    disks = NodeDisks(kernel.store, kernel.desire, kernel.part(BootSets), kernel.touch)
    address = kernel.part(ImageAddresses).address
    return Running(
        (disks,),
        load=partial(disks.load, kernel.database.documents),
        forget=disks.forget,
        node_routes=DiskKeyRequests(disks, kernel.running.decisions.guard_secrets).routes(),
        document=partial(disks.document, address=address),
        troubles={"disks": disks.troubles},
        hears={minos.events.DISKS: disks.apply_report},
    )


FEATURE = Feature("disks", _start, needs=("boots", "images"))
