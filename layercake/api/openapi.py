"""The OpenAPI 3.1 document, made from the route table and the request structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from layercake import __version__
from layercake.api.route import Route

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "hint": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def needs(route: Route) -> str:
    """What a caller must have for a route, in words."""
    right = " and the right exec" if route.exec else ""
    return f"Needs the role {route.role.name.lower()}{right}. Bound to groups: {route.reach.value}."


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    parameters = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names
    ]
    parameters += [{"name": n, "in": "query", "schema": {"type": "string"}} for n in route.query]
    failure = {
        "description": "an error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "description": needs(route),
        "parameters": parameters,
        "responses": {
            **_done(route),
            **dict.fromkeys(("400", "401", "403", "404", "422", "502"), failure),
        },
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _done(route: Route) -> dict[str, Any]:
    if not route.kinds:
        return {"101": {"description": "a WebSocket"}}
    schema = (
        {"$ref": f"#/components/schemas/{route.returns.__name__}"}
        if route.returns is not None
        else {"type": "string"}
    )
    return {
        "200": {
            "description": "done",
            "content": {kind: {"schema": schema} for kind in route.kinds},
        }
    }


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document."""
    table = list(routes)
    structs = [s for r in table for s in (r.body, r.returns) if s is not None]
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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
