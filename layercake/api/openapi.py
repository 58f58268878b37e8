"""The OpenAPI 3.1 document, made from the operations and their structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from layercake import __version__
from layercake.api.route import Operation

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "hint": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def needs(operation: Operation) -> str:
    """What a caller must have for a route, in words."""
    right = " and the right exec" if operation.exec else ""
    role = operation.role.name.lower()
    reach = operation.reach.value
    return f"Needs the role {role}{right}. Bound to groups: {reach}."


def _described(operation: Operation) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", operation.path_shown)
    parameters = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names
    ]
    parameters += [
        {"name": n, "in": "query", "schema": {"type": "string"}} for n in operation.query
    ]
    failure = {
        "description": "an error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": needs(operation),
        "parameters": parameters,
        "responses": {
            **_done(operation),
            **dict.fromkeys(("400", "401", "403", "404", "422", "502"), failure),
        },
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _done(operation: Operation) -> dict[str, Any]:
    if not operation.kinds:
        return {"101": {"description": "a WebSocket"}}
    schema = (
        {"$ref": f"#/components/schemas/{operation.returns.__name__}"}
        if operation.returns is not None
        else {"type": "string"}
    )
    return {
        "200": {
            "description": "done",
            "content": {kind: {"schema": schema} for kind in operation.kinds},
        }
    }


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document."""
    table = list(operations)
    structs = [s for r in table for s in (r.body, r.returns) if s is not None]
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path_shown, {})[one.method.lower()] = _described(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Layercake",
            "version": __version__,
            "description": "The head's API. Events: WebSocket /v1/events/ws.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
