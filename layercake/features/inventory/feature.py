"""The inventory: what there is and what is wanted, planned and applied."""

from __future__ import annotations

from imageapi.store.store import ImageStore
from layercake.api.delegation import Delegations
from layercake.features.boots.boot_sets import BootSets
from layercake.features.files.node_files import NodeFiles
from layercake.features.files.operations import FileChanges
from layercake.features.guard.guard import Guard
from layercake.features.inventory.means import Means
from layercake.features.inventory.operations import InventoryChanges
from layercake.features.inventory.reading import Readers
from layercake.features.inventory.renaming import NodeNames
from layercake.features.inventory.routes import InventoryRoutes
from layercake.features.inventory.secret_warnings import Warnings
from layercake.features.inventory.views import SiteViews
from layercake.features.machines.manager import Machines
from layercake.features.rolls.manager import Rolls
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    readers = Readers()
    files = kernel.part(FileChanges)
    means = Means(
        store,
        kernel.table,
        kernel.desire,
        kernel.membership,
        kernel.networks,
        kernel.modules.notifier,
        kernel.sync,
        kernel.vault,
        kernel.part(ImageStore),
        kernel.part(BootSets),
        kernel.part(Rolls),
        kernel.part(Guard),
        kernel.part(Machines),
        kernel.settings.beside_nodes,
        kernel.settings.simulated,
        Delegations(kernel.section("delegated")),
    )
    spread = kernel.part(NodeFiles).spread
    operations = InventoryChanges(means, files, spread, readers)
    names = NodeNames(means, operations.reader, spread)
    views = SiteViews(store, kernel.networks, kernel.settings, kernel.modules.ask)
    return Running(
        (
            operations,
            names,
            readers,
            views,
            Warnings(store, kernel.table.parts, kernel.vault, kernel.clock),
        ),
        loops=(readers.prepare,),
        stop=readers.close,
        routes=(InventoryRoutes(operations, names, views, files, kernel.store),),
        change_cards=operations.take_board,
    )


FEATURE = Feature(
    "inventory",
    _start,
    needs=("boots", "files", "guard", "images", "machines", "rolls"),
    routes=(InventoryRoutes,),
)
