"""The OpenAPI 3.1 document, made from the route table and the request structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from layercake import __version__
from layercake.api.route import Route

_ERROR = {
    "type": "object", "required": ["error"],
    "properties": {
        "error": {"type": "string"}, "hint": {"type": "string"}, "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def needs(route: Route) -> str:
    """What a caller must have for a route, in words."""
    right = " and the right exec" if route.exec else ""
    return f"Needs the role {route.role.name.lower()}{right}. Bound to groups: {route.reach.value}."


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    parameters += [{"name": n, "in": "query", "schema": {"type": "string"}} for n in route.query]
    failure = {"description": "an error", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation: dict[str, Any] = {
        "summary": route.summary, "description": needs(route), "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": {"application/json": {"schema": {"type": "object"}}}},
            "400": failure, "401": failure, "403": failure, "404": failure, "422": failure, "502": failure,
        },
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document."""
    table = list(routes)
    _, schemas = msgspec.json.schema_components([r.body for r in table if r.body], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Layercake", "version": __version__, "description": "The head's API. Events: WebSocket /v1/events/ws."},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
