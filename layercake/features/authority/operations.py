"""The head's authority: how old its certificates are, its replacement, and the end of a node's
credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from layercake.agents.joining import Joining
from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.api.caller import said_by
from layercake.base.clock import Clock
from layercake.features.boots.boot_sets import BootSets
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import Refused
from layercake.moduleapi.event_loop.slices import in_slices

LOOK_S = 3600.0


class AuthorityChanges:
    """Operations on the authority and on what it has signed."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        clock: Clock,
        sync: Sync,
        authority: Authority,
        boots: BootSets,
        joining: Joining,
        certificate_names: Sequence[str],
    ) -> None:
        self._store = store
        self._desire = desire
        self._clock = clock
        self._sync = sync
        self._authority = authority
        self._boots = boots
        self._joining = joining
        self._certificate_names = certificate_names

    def view(self) -> dict[str, Any]:
        """The certificates and how long they are good, whether the authority is being replaced, and
        which nodes and boot sets do not know the next one."""
        authority = self._authority
        behind, sets = self._behind() if authority.changing else ([], [])
        return {
            "certificates": authority.ages(),
            "changing": authority.changing,
            "nodes": behind,
            "boot_sets": sets,
        }

    def _behind(self) -> tuple[list[str], list[str]]:
        """The nodes that have not taken over the authorities and certificates of now, and the boot
        sets in use that were built before there was the next one: a node that boots such a set
        could not join."""
        mark = self._authority.mark
        boots = self._boots
        nodes = sorted(
            r.name
            for r in self._store
            if r.session is not None
            and (r.trust.authorities, r.trust.has) != (mark, r.trust.certificate)
        )
        used = {
            boots.default,
            *(boots.of(r.boots, r.node.profile, r.node.arch) for r in self._store),
        } - {""}
        return nodes, sorted(
            s.name for s in boots.all() if s.name in used and s.authorities != mark
        )

    async def rotate(self, by: str) -> dict[str, Any]:
        """Begins to replace the authority: nodes are told to trust the next one too, and get
        certificates of it. Raises InputError."""
        await asyncio.to_thread(self._authority.begin)
        self._store.event(
            None,
            events.AUTHORITY_ROTATING,
            f"by {said_by(by)}: nodes learn to trust the next authority",
        )
        async for record in in_slices(list(self._store)):
            if record.session is not None:
                self.certify(record)
        return self.view()

    async def finish(self, by: str, force: bool) -> dict[str, Any]:
        """Ends the replacement: the next authority is the only one. Raises InputError, and Refused
        while a node or a boot set that is in use knows only the old one, unless forced."""
        if self._authority.changing and not force:
            nodes, sets = self._behind()
            if nodes or sets:
                what = [f"nodes {', '.join(nodes[:10])}{' ...' if nodes[10:] else ''}"] * bool(
                    nodes
                ) + ([f"boot sets {', '.join(sets[:5])}"] * bool(sets))
                raise Refused(
                    f"cannot finish: {' and '.join(what)} do not know the next authority yet",
                    hint="boot sets: `layercake boot build`, `boot default`; what is cut off must "
                    "boot again: --force",
                )
        await asyncio.to_thread(self._authority.finish, *self._certificate_names)
        self._store.event(
            None,
            events.AUTHORITY_ROTATED,
            f"by {said_by(by)}: the old authority is trusted no more",
        )
        async for record in in_slices(list(self._store)):
            if record.session is not None:
                self._push(record)
        return self.view()

    def certify(self, record: Record) -> None:
        """Has a node fetch another certificate of its session."""
        record.trust = replace(
            record.trust, certificate=record.trust.certificate + 1, at=self._clock()
        )
        self._push(record)

    def _push(self, record: Record) -> None:
        self._store.revise(record)
        self._store.mark(record)
        self._sync.push(record)

    def renew(self) -> int:
        """Renews what has become old: the head's own certificate, and those of nodes. How many
        nodes are told."""
        self._authority.renew(*self._certificate_names)
        now = self._clock()
        told = 0
        for record in self._store:
            age = abs(now - record.trust.at)
            if record.session is not None and age > self._authority.renew_s:
                self.certify(record)
                told += 1
        return told

    async def renew_certificates(self) -> None:
        """Renews for as long as the head lives."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._authority.renew, *self._certificate_names)
            self.renew()

    async def revoke(self, text: str, by: str) -> list[str]:
        """Ends the sessions of nodes, with all keys and certificates of this boot, and leaves the
        nodes alone until a person clears them. Raises InputError and NotFound."""
        async with self._desire.transaction(revises=False) as transaction:
            records = self._store.select(text)
            async for record in in_slices(records):
                transaction.after(self._revoke, record, said_by(by))
        return [r.name for r in records]

    def _revoke(self, record: Record, by: str) -> None:
        why = f"its credentials were revoked by {by}"
        self._store.event(record, events.NODE_REVOKED, why, data={"by": by})
        self._joining.bar(record, why)
