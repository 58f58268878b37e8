"""The history of the inventory: every change that is accepted, in a Git repository."""

from __future__ import annotations

from layercake.features.history.history import DOCUMENTS, History, Repositories
from layercake.features.history.normal import layouts_of
from layercake.features.history.operations import PastInventories
from layercake.features.history.routes import HistoryRoutes
from layercake.features.inventory.operations import InventoryChanges
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel

FOLDER = "inventory.git"
"""Where the repository is, in the head's data directory."""


def _start(kernel: Kernel) -> Running:
    path = kernel.data_dir / FOLDER
    repositories = Repositories(path)
    history = History(
        kernel.store, kernel.networks, layouts_of(kernel.table.parts), repositories, kernel.clock
    )
    past = PastInventories(
        kernel.store,
        kernel.table,
        kernel.networks,
        repositories,
        history,
        kernel.part(InventoryChanges),
    )
    kernel.desire.accepting = history.accept
    return Running(
        (history, repositories, past),
        load=lambda: history.load(kernel.database.documents(DOCUMENTS)),
        loops=(history.run,),
        stop=repositories.close,
        routes=(HistoryRoutes(past, path),),
    )


FEATURE = Feature("history", _start, needs=("inventory",), routes=(HistoryRoutes,))
