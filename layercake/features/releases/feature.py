"""Releases of nodes between users: their disks are erased."""

from __future__ import annotations

from layercake.features.disks.node_disks import NodeDisks
from layercake.features.files.node_files import NodeFiles
from layercake.features.guard.guard import Guard
from layercake.features.machines.manager import Machines
from layercake.features.releases.manager import ReleaseManager
from layercake.features.releases.means import HeadNodeActions
from layercake.features.releases.operations import NodeReleases
from layercake.features.releases.routes import ReleaseRoutes
from layercake.features.releases.table import Releases
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    desire = kernel.desire
    actions = HeadNodeActions(
        store,
        desire,
        kernel.requests,
        kernel.sync,
        kernel.joining,
        kernel.part(NodeFiles).keys,
        kernel.part(NodeDisks),
        kernel.part(Machines),
        kernel.vault,
        kernel.table,
        kernel.orders.give_now,
        kernel.modules.ask,
        kernel.modules.notifier.changed,
        kernel.running.decisions,
    )
    releases = ReleaseManager(
        store, desire, Releases(kernel.database, store), actions, kernel.clock
    )
    operations = NodeReleases(store, kernel.part(Guard), releases)
    return Running(
        (releases, operations, actions),
        prepare=releases.load,
        tick=releases.advance,
        stop=releases.stop,
        forget=releases.removed,
        routes=(ReleaseRoutes(operations),),
    )


FEATURE = Feature(
    "releases", _start, needs=("disks", "files", "guard", "machines"), routes=(ReleaseRoutes,)
)
