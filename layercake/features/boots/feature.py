"""What nodes boot: the boot sets, and which of them each node gets."""

from __future__ import annotations

from imageapi.store.store import ImageStore
from layercake.features.boots.boot_sets import BootSets
from layercake.features.boots.choice import NodeBootSets
from layercake.features.boots.node_routes import BootSetRequests
from layercake.features.boots.operations import BootSetChanges
from layercake.features.boots.routes import BootSetRoutes
from layercake.features.boots.watch import BootSetWatch
from layercake.features.guard.guard import Guard
from layercake.features.images.document import ImageAddresses
from layercake.features.rolls.facts import Kind
from layercake.features.rolls.later.schedule import RollSchedule
from layercake.features.rolls.manager import Rolls
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel

SIGNING = "signing/begun"
"""The document that says: from here on images and boot sets are signed as they are taken in, and
only then."""


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    images = kernel.part(ImageStore)
    boots = BootSets(kernel.data_dir / "boot", kernel.authority.sign, images.signer)
    watch = BootSetWatch(store, boots, kernel.modules.notifier)
    of_nodes = NodeBootSets(boots, kernel.part(ImageAddresses).address)
    operations = BootSetChanges(
        store,
        kernel.desire,
        kernel.part(Guard),
        kernel.table,
        kernel.part(Rolls),
        boots,
        kernel.modules.notifier,
    )

    schedule = kernel.part(RollSchedule)
    schedule.begins(Kind.BOOT, operations.begin)
    schedule.begins(Kind.AGENT, operations.begin)

    def load() -> None:
        boots.load(kernel.database.documents("boot/"))
        if not kernel.database.documents(SIGNING):
            images.sign_all({i.digest: i.size for r in store for i in (*r.wanted, *r.stage)})
            boots.sign_all()
            store.documents[SIGNING] = lambda: b"1"
        watch.touched(boots.reread())

    return Running(
        (boots, watch, operations),
        load=load,
        loops=(watch.run,),
        routes=(BootSetRoutes(operations, boots, store),),
        node_routes=BootSetRequests(boots, more_drivers=kernel.section("more_drivers")).routes(),
        document=of_nodes.agent,
        boot_sets=of_nodes,
        kernel_modules=of_nodes.kernel_modules,
        fields={"kernel": of_nodes.kernel_field()},
    )


FEATURE = Feature("boots", _start, needs=("guard", "images", "rolls"), routes=(BootSetRoutes,))
