"""A site's own modules, as config.yaml names them: Python packages by entry point, programs in any
language by a command.

    modules:
      cooling: {}        a package with the entry point layercake.modules: cooling
      warmth:
        command: [node, /opt/warmth/main.js]
        declares: /opt/warmth/module.yaml
        settings: {limit_c: 80}

A program declares its variables and mutations in a YAML file of its own, so that they can be
checked before anything runs. What is installed is only offered; what is named in config.yaml is
loaded.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from layercake.base.text import nearest
from layercake.inventory import structs
from layercake.kraken.errors import DeclarationError, InputError
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.mutation import Mutation, Where, declare
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.module import (
    Call,
    Goals,
    Module,
    NodeFacts,
    NodeRequest,
    NoRequest,
    Reveal,
    Role,
)

GROUP = "layercake.modules"
Values = str | list[str]


class SiteModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A module of the site's own. Without a command it is a Python package with an entry point of
    its name."""

    command: Annotated[
        list[str],
        Meta(description="The program and its arguments, for a module in another language."),
    ] = []
    declares: Annotated[
        str, Meta(description="The program's declarations: the absolute path of a YAML file.")
    ] = ""
    settings: Annotated[
        dict[str, Any], Meta(description="What the module's process is started with.")
    ] = {}


class _Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: list[str]
    doc: str = ""


class _Mutation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    changes: dict[str, tuple[str, str]]
    requires: dict[str, Values] = {}
    excludes: dict[str, Values] = {}
    timeout: float = 10.0
    on_timeout: tuple[str, str] | None = None
    retries: int = 3
    cost: int = 1
    doc: str = ""


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    doc: str
    role: Literal["viewer", "operator", "admin"] = "operator"
    per_node: bool = True


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meaning: str
    severity: Severity = Severity.INFO


class _Goals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    up: dict[str, str] = {}
    off: dict[str, str] = {}


class Declarations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a program's YAML file declares. Variables begin with UNKNOWN whether they say so or
    not."""

    doc: str
    variables: dict[str, _Variable] = {}
    mutations: dict[str, _Mutation] = {}
    goals: _Goals = _Goals()
    watches: list[str] = []
    calls: dict[str, _Call] = {}
    events: dict[str, _Event] = {}


def _record(node: NodeFacts, part: object, reveal: Reveal) -> Mapping[str, Any]:
    return {
        "name": node.name,
        "macs": list(node.macs),
        "ip": node.ip,
        "arch": node.arch,
        "firmware": node.firmware,
    }


def _tuples(condition: Mapping[str, Values]) -> dict[str, tuple[str, ...]]:
    return {k: (v,) if isinstance(v, str) else tuple(v) for k, v in condition.items()}


def _mutation(name: str, found: _Mutation) -> Mutation:
    def doc() -> None: ...

    doc.__doc__ = found.doc
    return declare(
        name,
        changes=found.changes,
        requires=_tuples(found.requires),
        excludes=_tuples(found.excludes),
        timeout=found.timeout,
        on_timeout=found.on_timeout,
        retries=found.retries,
        cost=found.cost,
        handler=doc,
        guarded=any(before != UNKNOWN for before, _ in found.changes.values()),
    )


def module_of(name: str, command: tuple[str, ...], found: Declarations) -> Module:
    """The module that a program declares. Raises DeclarationError."""
    return Module(
        name=name,
        doc=found.doc,
        command=command,
        settings=_Anything,
        variables=tuple(
            Variable(k, (UNKNOWN, *(x for x in v.values if x != UNKNOWN)), v.doc)
            for k, v in found.variables.items()
        ),
        mutations=tuple(_mutation(k, m) for k, m in found.mutations.items()),
        goals=Goals(up=found.goals.up, off=found.goals.off),
        watches=tuple(found.watches),
        record=_record,
        calls=tuple(
            Call(k, c.doc, Role[c.role.upper()], NodeRequest if c.per_node else NoRequest, Any)
            for k, c in found.calls.items()
        ),
        events=tuple(EventKind(k, e.severity, e.meaning) for k, e in found.events.items()),
    )


class _Anything(msgspec.Struct, frozen=True):
    """The settings of a program: the program itself knows what they are."""


def _program(name: str, site: SiteModule) -> Module:
    if not site.declares:
        raise InputError(
            f"cannot load module {name}: it has a command and declares nothing",
            hint=f"modules.{name}.declares is the path of a YAML file with its variables and "
            "mutations",
        )
    table, problems = structs.read_file(
        Path(site.declares), f"declarations of module {name}", f"modules.{name}.declares names it"
    )
    found = structs.read(table, Declarations, problems)
    problems.raise_if_any()
    if found is None:
        raise InputError(f"cannot load module {name}: {site.declares} cannot be used")
    try:
        return module_of(name, tuple(site.command), found)
    except DeclarationError as error:
        raise DeclarationError(
            f"cannot load module {name} ({site.declares}): {error.message}", hint=error.hint
        ) from None


def _package(name: str) -> tuple[Module, str]:
    found = {e.name: e for e in importlib.metadata.entry_points(group=GROUP)}
    if name not in found:
        raise InputError(
            f"cannot load module {name}: no installed package offers it",
            hint=nearest(name, found)
            or f"install it beside Layercake; its entry point is in the group {GROUP}",
        )
    try:
        module = found[name].load()
    except (
        Exception,
        SystemExit,
    ) as error:  # somebody else's code: whatever it raises, the operator reads which package it was
        raise InputError(
            f"cannot load module {name}: its package fails: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, Module) or module.name != name:
        raise InputError(f"cannot load module {name}: its entry point is not a Module of that name")
    for mutation in module.mutations:
        if mutation.where is Where.NODE or mutation.handler is None:
            raise DeclarationError(
                f"cannot load module {name}: nobody carries out its mutation {mutation.name}",
                hint="a site's mutations have a handler, which its process on the head runs",
            )
    return module, found[name].value


class Loaded(NamedTuple):
    """A module with its settings, and where its process finds it ("package.module:NAME")."""

    module: Module
    settings: Any
    reference: str


def load(modules: Mapping[str, SiteModule]) -> dict[str, Loaded]:
    """The site's modules by name. Raises InputError and DeclarationError that name the module."""
    loaded: dict[str, Loaded] = {}
    for name, site in modules.items():
        if site.declares and not site.command:
            raise InputError(
                f"cannot load module {name}: it declares and has no program",
                hint=f"modules.{name}.command starts it",
            )
        module, reference = (_program(name, site), "") if site.command else _package(name)
        try:
            settings = (
                site.settings if site.command else msgspec.convert(site.settings, module.settings)
            )
            if module.check is not None:
                module.check(settings)
        except (msgspec.ValidationError, Mistake) as error:
            raise InputError(f"cannot load module {name}: its settings: {error}") from None
        loaded[name] = Loaded(module, settings, reference)
    return loaded
