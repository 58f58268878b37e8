"""A noun of the head as one object: what it needs, and what it does while the head runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from layercake.agents.https.document import DocumentPart
from layercake.agents.https.join import JoinCheck
from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.agents.intake import Hears
from layercake.agents.sync import Loss
from layercake.api.access import Access
from layercake.fleet.engine import Gate
from layercake.fleet.store import Record, WantedImage
from layercake.kraken.errors import DeclarationError
from layercake.kraken.events import EventKind

if TYPE_CHECKING:
    from layercake.kernel.kernel import Kernel

GuardSecrets = Callable[[Record, str], None]
"""Raises Refused for a node that is not to be handed the secrets that the text names."""
Stopped = Callable[[Record], str]
"""Why nothing may be begun on a node, "" if something may."""


class BootSetChoice(Protocol):
    """Who chooses what machines boot."""

    def served(self, record: Record) -> str:
        """The boot set that a node boots next, "" for none."""

    def of_strangers(self) -> Mapping[str, str]:
        """{architecture: boot set} of machines that are being discovered."""


class BootProof(Protocol):
    """What shows which system a node has booted."""

    def vouches(self, record: Record) -> bool:
        """Whether something else than its own word says what the node of a session has booted."""

    async def cleared(self, record: Record) -> None:
        """The node's TPM was cleared. Raises OperationFailed."""


def nothing() -> None:
    """A hook of which a feature has none."""


def ignored(record: Record) -> None:
    """The same, about a node."""


async def at_rest() -> None:
    """The same, as the head ends."""


@dataclass(frozen=True, slots=True)
class NodeField:
    """A field of nodes in lists that only a feature knows; it is shown where it is asked for.
    `view` is what is shown of a node, ready for JSON. `values` are {a name in queries: its values
    of a node}, texts, or numbers for the names of `amounts`. `private`: not for viewers."""

    view: Callable[[Record], Any]
    values: Mapping[str, Callable[[Record], Sequence[str | int]]] = field(default_factory=dict)
    amounts: frozenset[str] = frozenset()
    private: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """What a feature does while the head runs. `parts` are its objects, which others may ask the
    kernel for by their classes.

    `prepare` reads what the engine has to know before it is told of any node, `load` the rest of
    what was kept; `tick` is called twice a second, `scan` once a second, each of `loops` is a task
    of its own, `stop` ends what is under way. `forget` is called before a node is taken out of the
    store, `removed` after that.

    `routes` are objects with the operations for people (api.route). `node_routes`, `document`,
    `welcome` and `hears` are what nodes may ask, are told, are told as they join, and report.
    `join_check` is what a joining node has to show first, `guard_secrets` whether it may have
    secrets, `boot_proof` what it has booted. `access` lets people in.

    `troubles` says what is wrong with a node, for people, under the names of what is.

    `gate` says when a step that does something to a machine may begin, `stopped` why nothing may be
    begun on a node; `stops_changed` is told of which nodes (by their ids) that may be another
    answer now. `spoke` is told of a node that speaks, with how; `lost` of one that fell
    silent, with why. `claimed` is told of a machine that claims a node's place, and `change_cards`
    makes the cards of a machine those of a node. `boot_sets` chooses what machines boot,
    `kernel_modules` says where the modules of the kernel are that a node has booted, `image` gives
    an image by its name or raises NotFound, `matching` those of some nodes that a query means.
    `fields` are fields of nodes in lists, and names in queries.
    """

    parts: Sequence[object] = ()
    prepare: Callable[[], None] = nothing
    load: Callable[[], None] = nothing
    tick: Callable[[], None] = nothing
    scan: Callable[[], None] = nothing
    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    stop: Callable[[], Awaitable[None]] = at_rest
    forget: Callable[[Record], None] = ignored
    removed: Callable[[Record], None] = ignored
    routes: Sequence[object] = ()
    node_routes: Sequence[NodeRoute | OpenRoute] = ()
    document: DocumentPart | None = None
    welcome: DocumentPart | None = None
    hears: Mapping[EventKind, Hears] = field(default_factory=dict)
    join_check: JoinCheck | None = None
    guard_secrets: GuardSecrets | None = None
    boot_proof: BootProof | None = None
    access: Access | None = None
    troubles: Mapping[str, Callable[[Record], list[str]]] = field(default_factory=dict)
    gate: Gate | None = None
    stopped: Stopped | None = None
    stops_changed: Callable[[Iterable[str]], None] | None = None
    spoke: Callable[[Record, str], None] | None = None
    lost: Callable[[Record, Loss, str], None] | None = None
    claimed: Callable[[Record, Mapping[str, Any]], None] | None = None
    change_cards: ChangeCards | None = None
    boot_sets: BootSetChoice | None = None
    kernel_modules: Callable[[Record], Mapping[str, Any] | None] | None = None
    image: Callable[[str], WantedImage] | None = None
    matching: Matching | None = None
    fields: Mapping[str, NodeField] = field(default_factory=dict)


class Matching(Protocol):
    """Finds nodes by a query."""

    async def __call__(
        self, records: Sequence[Record], where: str, *, brief: bool = False
    ) -> list[Record]:
        """Those of the records that the query means; `brief`: one of a viewer. Raises
        InputError."""


ChangeCards = Callable[[Record, Sequence[str], str], Awaitable[None]]
"""Makes these MAC addresses a node's; the text is who wants it. Raises LayercakeError."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A noun. `start` makes it, out of what it asks the kernel for; `needs` are the features that
    have to run before it, `routes` the classes of its operations for people."""

    name: str
    start: Callable[[Kernel], Running]
    needs: tuple[str, ...] = ()
    routes: tuple[type, ...] = ()


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
