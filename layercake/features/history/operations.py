"""What can be asked of the history: shown, compared, and undone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from layercake.api.caller import Caller
from layercake.features.history.history import History, Repositories
from layercake.features.history.messages import of_nodes
from layercake.features.history.normal import NOT_IN_ENTRY, entry_of
from layercake.features.history.revisions import parse_revision, parse_span
from layercake.features.history.worker import Question
from layercake.features.inventory.new_inventory import Consent, Proposal
from layercake.features.inventory.operations import InventoryChanges
from layercake.features.inventory.routes import OPEN
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Store
from layercake.fleet.table import Table
from layercake.fleet.transaction import ORIGIN
from layercake.inventory.ranges import BadRange, expand, names_of
from layercake.inventory.rules import Keys
from layercake.kraken.errors import InputError, OperationFailed, Refused
from layercake.moduleapi.module import Role

SHORT = 10
"""Digits of a revision as people are shown it."""
SHOWN = 10
OPEN_FIELDS = OPEN | {"mac"}
KEEP = "keep"
TAKE_BACK = "take-back"


class PastInventories:
    """The inventory as it was, for people."""

    def __init__(
        self,
        store: Store,
        table: Table,
        networks: SiteNetworks,
        repositories: Repositories,
        history: History,
        inventory: InventoryChanges,
    ) -> None:
        self._store = store
        self._table = table
        self._networks = networks
        self._repositories = repositories
        self.history = history
        self._inventory = inventory

    # ----- looking

    async def log(self, caller: Caller, text: str, limit: int, revision: str) -> dict[str, Any]:
        """The newest changes, of the nodes of a range if there is one."""
        found = await self._query(
            "log",
            caller,
            nodes=self._nodes(caller, text),
            limit=limit,
            revision=self._revision(revision) if revision else "",
            bound=caller.groups is not None,
        )
        return {"changes": [_logged(one, caller) for one in found]}

    async def show(self, caller: Caller, text: str, revision: str) -> dict[str, Any]:
        """The inventory at a revision."""
        found: dict[str, Any] = await self._query(
            "show",
            caller,
            nodes=self._nodes(caller, text),
            groups=caller.groups,
            revision=self._revision(revision),
            open=sorted(OPEN_FIELDS) if caller.looks_only else None,
        )
        return found

    async def diff(self, caller: Caller, text: str, before: str, after: str) -> dict[str, Any]:
        """What differs between two revisions."""
        found: dict[str, Any] = await self._query(
            "diff",
            caller,
            nodes=self._nodes(caller, text),
            groups=caller.groups,
            before=self._revision(before),
            after=self._revision(after),
        )
        if caller.looks_only:
            for change in found["changes"]:
                change["fields"] = {
                    key: pair if key in OPEN_FIELDS else [None, None]
                    for key, pair in change["fields"].items()
                }
        return found

    async def blame(self, caller: Caller, node: str, revision: str) -> dict[str, Any]:
        """Who said what of a node."""
        found: dict[str, Any] = await self._query(
            "blame", caller, node=node, groups=caller.groups, revision=self._revision(revision)
        )
        only = {} if caller.groups is None else {"what": of_nodes([node])}
        found["lines"] = [
            {**line, "change": _logged({**line["change"], **only, "nodes": [node]}, caller)}
            for line in found["lines"]
            if not caller.looks_only or line["field"] in OPEN_FIELDS
        ]
        return found

    def _revision(self, text: str) -> str:
        return parse_revision(text, self._store.wall())

    def _nodes(self, caller: Caller, text: str) -> list[str] | None:
        """The nodes that are meant, and that the caller sees; None for all. Who sees the whole site
        may name nodes that are not there any more."""
        if caller.groups is None and not text:
            return None
        names, groups = self._store.names_and_groups()
        if caller.groups is not None:
            own = [record.name for record in self._store if caller.sees(record)]
            asked = (
                expand(caller.narrowed(self._store, text), names, groups) if text and own else own
            )
            return sorted(asked)
        if "@" in text:
            return sorted(expand(text, names, groups))
        try:
            return sorted(names_of(text))
        except BadRange as error:
            raise InputError(f"cannot use {text[:64]!r}: {error.reason}", hint=error.hint) from None

    async def _query(self, ask: str, caller: Caller | None, **options: Any) -> Any:
        """What the repository says; what is under way is waited for, unless it cannot be. `caller`
        is who looks, None for who undoes."""
        with contextlib.suppress(OperationFailed):
            await self.history.caught_up()
        question = Question(str(self._repositories.path), ask, options=options)
        looks = caller is not None and caller.looks_only
        job = self._repositories.viewers if looks else self._repositories.reader
        return await self._repositories.request(question, job)

    # ----- undoing

    async def plan_revert(self, span: str, moved: str) -> dict[str, Any]:
        """What undoing a change, or all of A..B, would do. `moved`: what becomes of values that
        have moved on since, KEEP or TAKE_BACK; "" is KEEP, as long as nobody has said it."""
        undone, proposal, unknown = await self._undoing(span, moved)
        planned = await self._inventory.plan_proposal(proposal)
        return {
            **planned,
            "revision": undone["revision"],
            "since": undone["since"],
            "moved": undone["moved"],
            "unknown": unknown,
        }

    async def revert(
        self, span: str, moved: str, digest: str | None, allow_remove: bool, consent: Consent
    ) -> dict[str, Any]:
        """Undoes it, as an inventory is applied. Raises Refused as that does, and if values have
        moved on and nobody said what becomes of them."""
        undone, proposal, _ = await self._undoing(span, moved)
        if undone["moved"] and not moved:
            raise Refused(
                f"cannot {proposal.title}: {'; '.join(map(moved_line, undone['moved'][:SHOWN]))}",
                hint="say --keep to leave that as it is, or --take-back to take it back too",
            )
        origin = ORIGIN.get()
        if origin is not None:
            ORIGIN.set(replace(origin, doing=proposal.title))
        return await self._inventory.apply_proposal(proposal, digest, allow_remove, consent)

    async def _undoing(self, span: str, moved: str) -> tuple[dict[str, Any], Proposal, list[str]]:
        if moved not in ("", KEEP, TAKE_BACK):
            raise InputError(f"cannot use moved={moved[:40]!r}", hint=f"{KEEP} or {TAKE_BACK}")
        await self.history.caught_up()
        since, revision = parse_span(span, self._store.wall())
        undone = await self._query(
            "undoing", None, since=since, revision=revision, take_back=moved == TAKE_BACK
        )
        keys = _Known(Keys.of(self._table.parts))
        nodes = {
            name: None if fields is None else entry_of(keys.known(name, fields))
            for name, fields in undone["nodes"].items()
        }
        domains = {
            group
            for fields in undone["nodes"].values()
            for group in (fields or {}).get("domains", ())
        }
        short = undone["revision"][:SHORT]
        title = f"revert {undone['since'][:SHORT]}..{short}" if since else f"revert {short}"
        proposal = Proposal(
            title,
            nodes,
            self._with_networks(undone["networks"]),
            frozenset(domains),
            f"{undone['head']} {undone['since']} {undone['revision']} {moved == TAKE_BACK}",
        )
        return undone, proposal, keys.unknown

    def _with_networks(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """All networks as they shall be, None if none is another."""
        if not wanted:
            return None
        now = {name: msgspec.to_builtins(one) for name, one in self._networks.by_name.items()}
        return {name: one for name, one in {**now, **wanted}.items() if one is not None}


class _Known:
    """Which keys of an entry this Layercake knows; a revision may be of another."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.unknown: list[str] = []

    def known(self, node: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those that are known; the others are noted."""
        found = {key: value for key, value in fields.items() if self._is_known(key)}
        self.unknown += [f"{node}: {key}" for key in fields if key not in found]
        return found

    def _is_known(self, key: str) -> bool:
        return key in NOT_IN_ENTRY or self._keys.unknown(key) is None


def moved_line(moved: Mapping[str, Any]) -> str:
    """A value that has moved on, in words."""
    what = f"{moved['node']}: {moved['field']}" if moved["field"] else str(moved["node"])
    now, after = (moved[key] or "not said" for key in ("now", "after"))
    return f"{what} is {now} by now, and was made {after}"


def _logged(change: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """A change as somebody is shown it: who is bound to groups sees no words that may name another
    node, and only who may change the whole site how others ask for that. `what` says no more than
    that already."""
    hidden: tuple[str, ...] = ()
    if caller.groups is not None:
        hidden = ("why", "how", "token", "address")
    elif caller.role < Role.ADMIN:
        hidden = ("how", "token", "address")
    return {**change, **dict.fromkeys(hidden, "")}
