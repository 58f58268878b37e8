"""What programs use: REST, the module API, the calls of modules."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from docs.generator.markdown import code, page, plain, table
from docs.generator.structs import type_name
from layercake.api.openapi import document
from layercake.api.route import Operation, Reach, operations
from layercake.head import modules
from layercake.head.features import FEATURES
from layercake.moduleapi.module import Module, Role
from layercake.moduleapi.service import Link, Service

PROTO = Path(__file__).parents[2] / "layercake" / "moduleapi" / "module.proto"


def routes() -> list[Operation]:
    """The operations of all features; none of these is started."""
    return [
        operation
        for feature in FEATURES
        for handlers in feature.routes
        for _, operation in operations(handlers)
    ]


def rest_page() -> str:
    """REST, from the OpenAPI document."""
    api = document(routes())
    known = {(r.method.lower(), r.path_shown): r for r in routes()}
    rows = [
        _route(known[method, path], operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    parts = [
        "The same as JSON: `GET /v1/openapi.json`. Events: the WebSocket `/v1/events/ws`. How to "
        "use it: "
        "[talk to the API](../howto/talk-to-the-api.md). Who may use which: [rights](rights.md).\n",
        table(("Route", "Does", "Role", "Query", "Body", "Answer"), rows),
    ]
    for name, schema in sorted(api["components"]["schemas"].items()):
        parts += [
            f"## {name}\n",
            plain(schema.get("description", "")) + "\n",
            _schema_type(schema)
            if "enum" in schema
            else table(
                ("Field", "Type", "Default"),
                [_property(k, v, schema) for k, v in schema.get("properties", {}).items()],
            ),
        ]
    return page("REST", *parts)


def _route(route: Operation, operation: Mapping[str, Any]) -> tuple[str, ...]:
    query = ", ".join(map(code, route.query))
    role = route.role.name.lower() + (", exec" if route.exec else "")
    name = ""
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition(
            "/"
        )[2]
    body = f"[{name}](#{name.lower()})" if name else ""
    answer = route.returns.__name__ if route.returns is not None else ""
    shown = (
        f"[{answer}](#{answer.lower()})"
        if answer
        else ", ".join(map(code, route.kinds)) or "WebSocket"
    )
    return (
        code(f"{route.method} {route.path_shown}"),
        plain(operation["summary"]),
        role,
        query,
        body,
        shown,
    )


_RIGHTS = """\
Made from the routes. `tests/access` tries each of them with every role and scope on a running head.

Bound: a token of some groups. "yes": all of it. "its nodes": of its own nodes; others are refused, and what is shown is cut.
Recorded: in the audit log, before it is done. [Who may do what](../howto/who-may-do-what.md) has the words.
"""


def rights_page() -> str:
    """Who may use which route: route x role x scope."""
    headings = (
        "Route",
        *(f"{role.name.lower()}{bound}" for role in Role for bound in ("", ", bound")),
        "Right",
        "Recorded",
    )
    rows = [
        (
            code(f"{r.method} {r.path_shown}"),
            *(_may(r, role, bound) for role in Role for bound in (False, True)),
            "exec" if r.exec else "",
            "yes" if r.changes else "",
        )
        for r in routes()
    ]
    reaches = [
        (
            plain(reach.value),
            ", ".join(code(f"{r.method} {r.path_shown}") for r in routes() if r.reach is reach),
        )
        for reach in Reach
    ]
    return page(
        "Rights",
        _RIGHTS,
        table(headings, rows),
        "## What a scope is held to\n",
        table(("About", "Routes"), reaches),
    )


def _may(route: Operation, role: Role, bound: bool) -> str:
    if role < route.role or (bound and route.reach is Reach.SITE):
        return ""
    return "its nodes" if bound and route.reach is not Reach.NONE else "yes"


def _property(key: str, value: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[str, ...]:
    needed = key in schema.get("required", ())
    default = msgspec.json.encode(value["default"]).decode() if "default" in value else ""
    return code(key), _schema_type(value), "required" if needed else code(default)


def _schema_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _reference(schema["$ref"])
    if "anyOf" in schema:
        return " or ".join(_schema_type(s) for s in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(value) or '""' for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_schema_type(schema['items'])}" if schema.get("items") else "list"
    return {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "object": "mapping",
    }.get(str(schema.get("type", "anything")), str(schema.get("type", "anything")))


def _reference(path: str) -> str:
    """A link to another schema's section, by the anchor that its heading has."""
    name = path.rpartition("/")[2]
    return f"[{name}](#{name.lower().replace('.', '')})"


def module_api_page() -> str:
    """What a module is, what its process implements, and the messages."""
    hints = typing.get_type_hints(Module)
    rows = [
        (
            code(f.name),
            "required" if f.default is f.default_factory is dataclasses.MISSING else "",
            type_name(hints[f.name]),
        )
        for f in dataclasses.fields(Module)
    ]
    proto = PROTO.read_text()
    head = " ".join(
        line.removeprefix("// ") for line in proto.splitlines() if line.startswith("// ")
    )
    return page(
        "Module API",
        "How to write one: [write a module](../howto/write-a-module.md).\n",
        "## Module\n",
        *_paragraphs(Module),
        table(("Field", "", "Type"), rows),
        "## Service\n",
        *_paragraphs(Service),
        table(("Method", "Meaning"), _methods(Service)),
        "## Link\n",
        *_paragraphs(Link),
        table(("Method", "Meaning"), _methods(Link)),
        "## Messages\n",
        plain(head) + "\n",
        f"```proto\n{proto[proto.index('syntax') :].strip()}\n```\n",
    )


def _paragraphs(thing: Any) -> Iterator[str]:
    for text in (inspect.getdoc(thing) or "").split("\n\n"):
        yield plain(text) + "\n"


def _methods(thing: type) -> Iterator[tuple[str, str]]:
    for name, method in vars(thing).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            given = ", ".join(p for p in inspect.signature(method).parameters if p != "self")
            yield code(f"{name}({given})"), plain(inspect.getdoc(method))


def modules_page() -> str:
    """The modules of the appliance, and what they can be asked."""
    every = modules.built_in()
    rows = [
        (
            code(m.name),
            plain(m.doc),
            code(m.section),
            "yes" if m.has_process else "",
            ", ".join(code(v.name) for v in m.variables),
        )
        for m in every
    ]
    calls = [
        (
            code(c.name),
            plain(c.summary),
            code(m.name),
            c.role.name.lower(),
            "each node" if c.per_node else "",
            ", ".join(code(f.name) for f in msgspec.structs.fields(c.request) if f.name != "node"),
        )
        for m in every
        for c in m.calls
        if not c.inside
    ]
    return page(
        "Modules and calls",
        table(("Module", "Does", "Section", "Own process", "Variables"), rows),
        "## Calls\n",
        "`layercake calls` lists them, `layercake call NAME RANGE` makes one.\n",
        table(("Call", "Answer", "Module", "Role", "Asked of", "Parameters"), calls),
    )
