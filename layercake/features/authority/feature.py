"""The head's certificate authority, and how it is replaced."""

from __future__ import annotations

from layercake.features.authority.operations import AuthorityChanges
from layercake.features.authority.rotation import Rotations
from layercake.features.authority.routes import AuthorityRoutes
from layercake.features.boots.boot_sets import BootSets
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel

PASSWORD = "power.password"  # noqa: S105 (the call of the module that has BMCs' passwords)


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
    rotations = Rotations(
        kernel.store,
        kernel.authority,
        kernel.vault,
        kernel.section("rotation"),
        kernel.table.caller.get(PASSWORD),
    )
    return Running(
        (operations, rotations),
        loops=(operations.renew_certificates, rotations.run),
        routes=(AuthorityRoutes(operations, kernel.store),),
    )


FEATURE = Feature("authority", _start, needs=("boots",), routes=(AuthorityRoutes,))
