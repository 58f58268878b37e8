"""What has not been replaced for longer than the site wants: the authority, passwords of BMCs. The
head tells it; to replace them is for a person, as boot sets, or the BMCs, have to come along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from layercake.agents.pki import Authority
from layercake.base.secrets import Vault
from layercake.base.text import count_of
from layercake.features.authority.settings import RotationSettings
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import references

DAY_S = 86_400.0
FIRST_S = 600.0
"""How long after a start the head looks first: the machine's clock may be wrong before."""
_LONGEST = 300


class Rotations:
    """Looks at the dates. `module` is the one whose part of a node names the BMC's password, None
    if there is none."""

    def __init__(
        self,
        store: Store,
        authority: Authority,
        vault: Vault,
        settings: RotationSettings,
        module: str | None,
    ) -> None:
        self._store = store
        self._authority = authority
        self._vault = vault
        self._settings = settings
        self._module = module

    async def run(self) -> None:
        """Tells once a day what is due, for as long as the head lives."""
        await asyncio.sleep(FIRST_S)
        while True:
            await self.remind()
            await asyncio.sleep(DAY_S)

    async def remind(self) -> None:
        """Tells what is due now."""
        if due := await asyncio.to_thread(lambda: list(self.due())):
            self._store.event(None, events.ROTATION_DUE, "; ".join(due))

    def due(self) -> Iterator[str]:
        """What is due, in words."""
        now = self._store.wall()
        made = self._authority.made_at
        most = self._settings.authority_days
        if most and made is not None and now - made > most * DAY_S:
            yield (
                f"the head's authority is older than {most} days: `layercake authority rotate` "
                "begins to replace it"
            )
        if names := self._old_passwords(now):
            what = fold(names)
            shown = what if len(what) <= _LONGEST else count_of(len(names), "node")
            yield (
                f"the passwords of BMCs are older than {self._settings.bmc_passwords_days} days: "
                f"{shown}"
            )

    def _old_passwords(self, now: float) -> list[str]:
        """The nodes whose BMC's password is too old."""
        most = self._settings.bmc_passwords_days
        if not most or self._module is None:
            return []
        old = []
        for record in list(self._store):
            part = record.node.parts.get(self._module)
            for ref in () if part is None else references(part):
                try:
                    written = self._vault.written(ref)
                except (InputError, OSError):
                    continue  # one that cannot be read is told elsewhere
                if written is not None and now - written > most * DAY_S:
                    old.append(record.name)
                    break
        return old
