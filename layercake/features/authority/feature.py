"""The head's certificate authority, and how it is replaced."""

from __future__ import annotations

from layercake.features.authority.operations import AuthorityChanges
from layercake.features.authority.routes import AuthorityRoutes
from layercake.features.boots.boot_sets import BootSets
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    operations = AuthorityChanges(
        kernel.store,
        kernel.desire,
        kernel.clock,
        kernel.sync,
        kernel.authority,
        kernel.part(BootSets),
        kernel.joining,
        kernel.settings.certificate_names,
    )
    return Running(
        (operations,),
        loops=(operations.renew_certificates,),
        routes=(AuthorityRoutes(operations, kernel.store),),
    )


FEATURE = Feature("authority", _start, needs=("boots",), routes=(AuthorityRoutes,))
