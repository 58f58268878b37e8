"""The heads of a site, for people."""

from __future__ import annotations

from layercake.features.heads.known import KnownHeads
from layercake.features.heads.node_routes import FileRequests
from layercake.features.heads.operations import HeadChanges
from layercake.features.heads.routes import HeadRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    heads = HeadChanges(kernel.site, kernel.store)
    known = KnownHeads(kernel.site, kernel.heads, kernel.store, kernel.database)
    site = kernel.site
    return Running(
        (heads, known),
        prepare=known.load,
        loops=(known.run,),
        routes=(HeadRoutes(heads),),
        node_routes=() if site is None else FileRequests(kernel.data_dir, site.files).routes(),
    )


FEATURE = Feature("heads", _start, routes=(HeadRoutes,))
