"""Who asks for something: a token on the network, or a user of this machine. What a caller may, and
may see, is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from layercake.base.text import clean
from layercake.fleet.store import Record, Store
from layercake.inventory.ranges import UnknownName, expand, fold
from layercake.kraken.errors import Refused
from layercake.moduleapi.module import Role

NAME = 80
_PROGRAM = 120


def printable(text: str, most: int) -> str:
    """Text from outside as it stands in a history: one line, cut."""
    return "".join(c for c in clean(text) if c.isprintable()).strip()[:most]


def program_of(request: web.Request) -> str:
    """With what a request was sent, as far as it says so."""
    return printable(request.headers.get("User-Agent", ""), _PROGRAM)


def said_by(name: str) -> str:
    """Who asks, as it stands in the history."""
    return printable(name, NAME) or "a person"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `kind` is how it is known: by its token, as a user of this machine by the socket,
    or by the site's provider. `groups` are those of the inventory that it is bound to, None for the
    whole site. `exec`: the right to run commands on nodes, which no role has. `address` and
    `program` are where it asks from and with what, as far as it says so. `token` is its id, and
    `session` that of the browser's session that it asks in, "" without one."""

    name: str
    kind: Literal["token", "local", "oidc"]
    role: Role
    groups: tuple[str, ...] | None = None
    exec: bool = False
    address: str = ""
    program: str = ""
    token: str = ""
    expires: float | None = None
    session: str = ""

    def __str__(self) -> str:
        return f"{self.name} at {self.address}" if self.address else self.name

    @property
    def scope(self) -> str:
        """What it is bound to, in words."""
        return "the whole site" if self.groups is None else f"the groups {', '.join(self.groups)}"

    @property
    def looks_only(self) -> bool:
        """Whether it is a viewer: it sees no command lines, and no texts that may hold one."""
        return self.role < Role.OPERATOR

    def by(self, said: str = "") -> str:
        """Its name for a history. A program may say for whom it asks; that stands beside its own
        name, never in its place."""
        whom = printable(said, NAME)
        return self.name if whom in ("", self.name) else f"{self.name} for {whom}"[:NAME]

    @property
    def bound(self) -> Callable[[Record], bool] | None:
        """What tells its nodes from others; None for the whole site."""
        return None if self.groups is None else self.sees

    def sees(self, record: Record) -> bool:
        """Whether a node is of its scope."""
        return self.groups is None or any(group in self.groups for group in record.node.groups)

    def sees_name(self, store: Store, name: str) -> bool:
        """The same of a node's name; one that is not in the inventory is nobody's, and shown to who
        sees the whole site."""
        return self.groups is None or (
            (record := store.lookup(name)) is not None and self.sees(record)
        )

    def only(self, store: Store, names: Iterable[str]) -> list[str]:
        """Those of the nodes that it sees."""
        return [name for name in names if self.sees_name(store, name)]

    def narrowed(self, store: Store, text: str) -> str:
        """A range of nodes as a range of its own nodes: @all is all of those. Raises Refused for
        any other node, whether there is one of that name or not, and InputError as
        `ranges.expand`."""
        if self.groups is None:
            return text
        _, groups = store.names_and_groups()
        mine = frozenset().union(*(groups.get(group, ()) for group in self.groups))
        of_mine = {group: names & mine for group, names in groups.items() if names & mine}
        try:
            return fold(expand(text, mine, of_mine))
        except UnknownName:
            raise self.refusal(f"use {text[:80]!r}", "it names others than the nodes") from None

    def refusal(self, what: str, why: str) -> Refused:
        """The error for what is beyond its scope."""
        return Refused(
            f"cannot {what}: {why} of {self.scope}",
            hint=f"that is all that {self.name} is for; see `layercake token list`",
        )
