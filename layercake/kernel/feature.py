"""A noun of the head as one object: what it needs, and what it does while the head runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from layercake.agents.https.document import DocumentPart
from layercake.agents.https.join import JoinCheck
from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.agents.intake import Hears
from layercake.fleet.store import Record
from layercake.kraken.errors import DeclarationError
from layercake.kraken.events import EventKind

if TYPE_CHECKING:
    from layercake.kernel.kernel import Kernel

GuardSecrets = Callable[[Record, str], None]
"""Raises Refused for a node that is not to be handed the secrets that the text names."""


def nothing() -> None:
    """A hook of which a feature has none."""


def ignored(record: Record) -> None:
    """The same, about a node."""


async def at_rest() -> None:
    """The same, as the head ends."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a feature does while the head runs. `part` is its object, which others may ask the
    kernel for by its class.

    `load` reads the database, `tick` is called twice a second, each of `loops` is a task of its
    own, `stop` ends what is under way. `forget` is called before a node is taken out of the store,
    `removed` after that. `node_routes`, `document` and `hears` are what nodes may ask, are told and
    report. `join_check` is what a joining node has to show first, `guard_secrets` whether it may
    have secrets.
    """

    part: object
    load: Callable[[], None] = nothing
    tick: Callable[[], None] = nothing
    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    stop: Callable[[], Awaitable[None]] = at_rest
    forget: Callable[[Record], None] = ignored
    removed: Callable[[Record], None] = ignored
    node_routes: Sequence[NodeRoute | OpenRoute] = ()
    document: DocumentPart | None = None
    hears: Mapping[EventKind, Hears] = field(default_factory=dict)
    join_check: JoinCheck | None = None
    guard_secrets: GuardSecrets | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """A noun. `start` makes it, out of what it asks the kernel for; `needs` are the features that
    have to run before it."""

    name: str
    start: Callable[[Kernel], Running]
    needs: tuple[str, ...] = ()


def in_order(features: Iterable[Feature]) -> list[Feature]:
    """The features, each after those that it needs, otherwise as they are given. Raises
    DeclarationError for a name that is there twice, one that is missing, and a circle."""
    waiting: dict[str, Feature] = {}
    for feature in features:
        if waiting.setdefault(feature.name, feature) is not feature:
            raise DeclarationError(f"cannot start the head: there are two features {feature.name}")
    ready: dict[str, Feature] = {}
    while waiting:
        free = [f for f in waiting.values() if all(name in ready for name in f.needs)]
        if not free:
            first = next(iter(waiting.values()))
            lacks = ", ".join(name for name in first.needs if name not in ready)
            raise DeclarationError(
                f"cannot start the head: feature {first.name} needs {lacks}",
                hint="it is not there, or needs this one itself",
            )
        ready[free[0].name] = waiting.pop(free[0].name)
    return list(ready.values())
