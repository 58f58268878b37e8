"""The heads of a site, for people."""

from __future__ import annotations

from layercake.features.heads.floating import conflicts
from layercake.features.heads.invitations import DOCUMENTS, Invitations
from layercake.features.heads.known import KnownHeads
from layercake.features.heads.membership import Membership
from layercake.features.heads.node_routes import ConsoleRequests, FileRequests, JoinRequests
from layercake.features.heads.operations import HeadChanges
from layercake.features.heads.routes import HeadRoutes
from layercake.heads.floating.keeper import FloatingAddresses, alone
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    site = kernel.site
    floating = FloatingAddresses(
        kernel.settings.floating, alone if site is None else lambda: site.leads_until
    )
    known = KnownHeads(site, kernel.heads, kernel.store, kernel.database, kernel.clock, floating)

    def check_floating() -> None:
        floating.refused = conflicts(
            kernel.settings.floating,
            (record.node for record in kernel.store),
            kernel.table.parts,
            kernel.networks.by_name,
            kernel.heads.others,
        )

    if site is None:
        changes = HeadChanges(None, known, kernel.store, kernel.database)
        return Running(
            (changes, known),
            prepare=known.load,
            load=check_floating,
            loops=(known.run, floating.hold),
            routes=(HeadRoutes(changes),),
        )
    site.give_up_addresses = floating.give_up
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
    heads = HeadChanges(membership, known, kernel.store, kernel.database)

    def load() -> None:
        invitations.load(kernel.database.documents(DOCUMENTS))
        check_floating()

    return Running(
        (heads, known),
        prepare=known.load,
        load=load,
        loops=(known.run, membership.promote_learners, floating.hold),
        routes=(HeadRoutes(heads),),
        node_routes=(
            *FileRequests(kernel.data_dir, site.files).routes(),
            *ConsoleRequests(kernel.data_dir, kernel.modules.ask).routes(),
            *JoinRequests(membership, kernel.authority).routes(),
        ),
    )


FEATURE = Feature("heads", _start, routes=(HeadRoutes,))
