"""The heads of a site, for people."""

from __future__ import annotations

from layercake.features.heads.invitations import DOCUMENTS, Invitations
from layercake.features.heads.known import KnownHeads
from layercake.features.heads.membership import Membership
from layercake.features.heads.node_routes import FileRequests, JoinRequests
from layercake.features.heads.operations import HeadChanges
from layercake.features.heads.routes import HeadRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    known = KnownHeads(kernel.site, kernel.heads, kernel.store, kernel.database, kernel.clock)
    site = kernel.site
    if site is None:
        alone = HeadChanges(None, known, kernel.store)
        return Running(
            (alone, known), prepare=known.load, loops=(known.run,), routes=(HeadRoutes(alone),)
        )
    invitations = Invitations(kernel.desire, kernel.store.wall)
    membership = Membership(
        kernel.data_dir,
        site,
        kernel.store,
        kernel.authority,
        invitations,
        kernel.settings.people_url,
        known.forget,
    )
    heads = HeadChanges(membership, known, kernel.store)
    return Running(
        (heads, known),
        prepare=known.load,
        load=lambda: invitations.load(kernel.database.documents(DOCUMENTS)),
        loops=(known.run, membership.promote_learners),
        routes=(HeadRoutes(heads),),
        node_routes=(
            *FileRequests(kernel.data_dir, site.files).routes(),
            *JoinRequests(membership, kernel.authority).routes(),
        ),
    )


FEATURE = Feature("heads", _start, routes=(HeadRoutes,))
