"""What a module is: one object that says everything that the head has to know of it.

A module's own file `module.py` ends in `MODULE = Module(...)`; layercake/head/modules.py names it
once. The state engine plans with its variables and mutations, the inventory and config.yaml are
read by its structs, its process is started, told of nodes and asked by the head, and the API, the
command line and the reference list its calls and event kinds: all from this table.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from layercake.base.secrets import SecretRef
from layercake.kraken.errors import DeclarationError
from layercake.kraken.events import EventKind
from layercake.kraken.mutation import Mutation, summary
from layercake.kraken.variables import Variable
from layercake.moduleapi.network import HeadAddress, Network

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class Role(enum.IntEnum):
    """Who may ask for something over the API; each role may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class NodeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The request of a call about one node, by its id. Calls with more to say have a struct that
    inherits from this one."""

    node: str


class NoRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a call that needs nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """Something that a module can be asked outside the state engine: `handler(service, request) ->
    answer`, JSON-ready.

    `name` is a dotted word that no other module has ("power.sensors"); `request` and `answer` are
    types that msgspec knows. One that is `inside` is asked by the head itself and by nobody else:
    there may be a secret in it.
    """

    name: str
    summary: str
    role: Role
    request: type[msgspec.Struct]
    answer: Any
    handler: Callable[[Any, Any], Awaitable[Any]] | None = field(
        compare=False, repr=False, default=None
    )
    inside: bool = False

    @property
    def per_node(self) -> bool:
        """Whether it is asked of one node at a time."""
        return any(f.name == "node" for f in msgspec.structs.fields(self.request))


def call(
    name: str,
    *,
    role: Role,
    request: type[msgspec.Struct] = NodeRequest,
    answer: Any = Any,
    inside: bool = False,
) -> Callable[[Callable[[Any, Any], Awaitable[Any]]], Call]:
    """Declares the decorated handler as a call; its summary is that of its docstring."""

    def wrap(handler: Callable[[Any, Any], Awaitable[Any]]) -> Call:
        return Call(name, summary(handler), role, request, answer, handler, inside)

    return wrap


class NodeFacts(Protocol):
    """What every module may know of a node: its entry in the inventory
    (layercake.inventory.schema.Node), what it boots next, what modules offer to others
    (Module.offers), its network (moduleapi.network), None where the inventory has none, and where
    its boot finds the other heads of the site, as URL@SYNC."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def macs(self) -> tuple[str, ...]: ...
    @property
    def ip(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def firmware(self) -> str: ...
    @property
    def boot_set(self) -> str: ...
    @property
    def offers(self) -> Mapping[str, str]: ...
    @property
    def network(self) -> Mapping[str, Any] | None: ...
    @property
    def other_heads(self) -> Sequence[str]: ...


Reveal = Callable[[SecretRef | None], str]
"""Gives the value of a secret that a part refers to, "" if it cannot be read: then the node's
history says so."""
Record = Callable[[NodeFacts, Any, Reveal], Mapping[str, Any]]
"""(node, its part or None, reveal) -> what the module's process is told of the node, JSON-ready; it
may hold secrets."""
Offers = Callable[[NodeFacts, Any, Any, "Site"], Mapping[str, str]]
"""(node, its part or None, the settings, the head) -> {word: text} that other modules may need to
know of the node; no secrets."""
Tells = Callable[[Any], Mapping[str, Any]]
"""(a node's part or None) -> what the node itself is told of it with its desired state, JSON-ready
and without secrets, by keys that no other module has."""
Held = Callable[[Any, Mapping[str, str]], str]
"""(a node's part or None, its variables) -> why rolls are to leave the node out, "" if they are
not."""
Tune = Callable[[Mutation, Any, Any], Mutation]
"""(mutation, a node's part, the settings) -> the mutation as it is for that node, with another
timeout or number of attempts."""


class NodePart(msgspec.Struct, frozen=True, kw_only=True):
    """A module's part of a node in the inventory: the fields are the keys.

    They stand in a mapping under KEY, or with "" among the node's own keys. A field's Annotated may
    hold a `fields.Check` and a `msgspec.Meta` with its description. With ENTRY, the keys under KEY
    are names that the site gives: each stands for a mapping that ENTRY describes, and the one
    field, `entries`, has them by these names. With WHOLE, an entry of a later layer takes the place
    of all of the earlier one of its name.
    """

    KEY: ClassVar[str] = ""
    ENTRY: ClassVar[type[msgspec.Struct] | None] = None
    WHOLE: ClassVar[bool] = False


def references(part: NodePart) -> list[SecretRef]:
    """The secrets that a module's part of a node refers to."""
    return [
        value
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), SecretRef)
    ]


class Traits(NamedTuple):
    """What a node is whatever its modules say: its address, architecture and firmware, whether it
    may be one that is made up (`layercake sim`), and its network, None for that of the head."""

    ip: str
    arch: str
    firmware: str
    simulated: bool = True
    network: Network | None = None


EVERY = ("*",)
"""All fields of a part (Part.at_boot)."""


@dataclass(frozen=True, slots=True)
class Part:
    """How a module's part of a node is read. `complete` makes sense of all fields together, {field:
    value} as far as they are there, and raises fields.Mistake; of a part with ENTRY they are {name:
    {field: value}}, and it gives {"entries": ...}. `unique` gives values that no two nodes may
    share; the `field` of each, or "NAME.FIELD", is the one to blame then. `view` is what of it
    people see with a node, None for a node without. `secret_to` says where its secrets are sent:
    when that changes, a person confirms it. `warnings` are said with every plan and status.
    `known_by` is by what a node's machine is recognised, () for nothing: such a node may do without
    a MAC address. `suits` raises fields.Mistake for what does not go together with the rest of the
    node, and for a key that would have no effect. `at_boot` are the fields, or EVERY one, that a
    change of takes effect when the node boots next, and not before."""

    struct: type[NodePart]
    complete: Callable[[dict[str, Any]], dict[str, Any]] = dict
    unique: Callable[[Any], tuple[Unique, ...]] = lambda part: ()
    view: Callable[[Any], dict[str, Any]] = lambda part: {}
    secret_to: Callable[[Any], str] = lambda part: ""
    warnings: Callable[[Any], tuple[str, ...]] = lambda part: ()
    known_by: Callable[[Any], tuple[Hashable, ...]] = lambda part: ()
    suits: Callable[[Any, Traits], None] = lambda part, node: None
    at_boot: tuple[str, ...] = ()

    def waits_for_boot(self, field: str) -> bool:
        """Whether a change of a field, as it is called in an inventory ("bmc.boot"), takes effect
        at the next boot."""
        name = field.removeprefix(f"{self.key}.") if self.key else field
        ours = not self.key or name != field
        return ours and (self.at_boot == EVERY or name in self.at_boot)

    @property
    def key(self) -> str:
        """The key that it stands under, "" among the node's own."""
        return self.struct.KEY


NAME = "name"
"""What a `Unique` is called that no other node may be called by, either."""


class Unique(NamedTuple):
    """A value that no two nodes may share: what it is called, the value, how it is shown, and the
    field it stands in. `ip` is the address that something has by it, "" for none: no guest gets
    that. A value that is `shared` may be several nodes', but none's for itself then."""

    what: str
    value: Hashable
    shown: str
    field: str
    ip: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Goals:
    """What a module wants of its variables: of a node that is wanted `up`, of one that is wanted
    `off`, and, in the place of what `up` says, of one that is wanted up and shall run nothing
    (`empty`)."""

    up: Mapping[str, str] = field(default_factory=dict)
    off: Mapping[str, str] = field(default_factory=dict)
    empty: Mapping[str, str] = field(default_factory=dict)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What every module's process is told of the head: its addresses on the nodes' network, and
    where its data are. `more` are the further networks that it is in, `floating` the addresses that
    the head has which leads, beside its own: whoever binds one may not have it yet."""

    interface: str
    address: str
    prefix: int
    gateway: str | None
    dns: list[str]
    head_url: str
    sync_address: str
    data_dir: str
    more: list[HeadAddress] = []
    floating: list[HeadAddress] = []

    @property
    def heads(self) -> list[HeadAddress]:
        """All the networks that it is in, the first one first."""
        return [
            HeadAddress(interface=self.interface, address=self.address, prefix=self.prefix),
            *self.more,
        ]


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a module that has nothing to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module.

    `section` is its key in config.yaml, read as `settings`; `check` raises fields.Mistake for
    settings that do not go together. `service` is where its process is made
    ("pxe.service:PxeService"), or `command` a program in any language; without either it has no
    process. `record` says what the process is told of a node; without it, it is told of none.
    `offers` is what it tells the other modules of a node, `tells` what it has the head tell the
    node itself. `watches` are the variables whose changes it is told. `alive` is what a datagram of
    a node proves of its variables. `held` keeps nodes out of rolls. `tune` adapts its mutations to
    one node; `tuned_by` gives what of its part of a node that depends on, so that it is asked once
    for all nodes that are alike. `networks`: its process is told of all networks of the inventory,
    also of those that no node is in. `with_part`: its mutations are those of nodes that have its
    part, and other nodes cost nothing for it; `before` is what other modules' mutations require
    then, beside what they say themselves: {mutation: {variable: value}}, and `unless` what excludes
    them. `gives_way`: a site's own module that has its name, or one of its variables, takes its
    place: the appliance has it since a version only that others came before.
    """

    name: str
    doc: str
    section: str = ""
    settings: type[msgspec.Struct] = NoSettings
    check: Callable[[Any], None] | None = None
    part: Part | None = None
    variables: tuple[Variable, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    goals: Goals = Goals()
    record: Record | None = None
    offers: Offers | None = None
    tells: Tells | None = None
    watches: tuple[str, ...] = ()
    alive: Mapping[str, str] = field(default_factory=dict)
    held: Held | None = None
    tune: Tune | None = None
    tuned_by: Callable[[Any], Hashable] | None = None
    networks: bool = False
    with_part: bool = False
    gives_way: bool = False
    before: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unless: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    events: tuple[EventKind, ...] = ()
    service: str = ""
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"cannot declare module {self.name!r}: a name is lower case, at most 32 characters"
            )

    @property
    def has_process(self) -> bool:
        """Whether the head runs a process for it."""
        return bool(self.service or self.command)

    @property
    def discovers(self) -> frozenset[str]:
        """The variables that its process may say something about: those it declares, and those that
        its mutations change."""
        return frozenset(
            {v.name for v in self.variables} | {name for m in self.mutations for name in m.changes}
        )
