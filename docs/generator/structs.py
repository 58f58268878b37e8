"""The fields of a struct as rows of a table: key, type, default, meaning."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from docs.generator.markdown import code, plain
from layercake.base.secrets import SecretRef


def type_name(hint: Any) -> str:
    """A type, for people."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return type_name(args[0])
    if origin is Literal:
        return " or ".join(str(a) for a in args)
    if origin in (Union, UnionType):
        return " or ".join(type_name(a) for a in args)
    if origin in (list, tuple):
        return f"list of {type_name(args[0])}" if args else "list"
    if origin in (dict, Mapping):
        return "mapping"
    words = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        type(None): "null",
        Any: "anything",
        dict: "mapping",
        list: "list",
        SecretRef: "reference",
    }
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def _described(hint: Any) -> str:
    metas = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, msgspec.Meta)]
    return next((m.description for m in metas if m.description), "")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return code(msgspec.json.encode(value, enc_hook=str).decode())


def _nested(hint: Any) -> type[msgspec.Struct] | None:
    bare = get_args(hint)[0] if get_origin(hint) is typing.Annotated else hint
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


def fields_of(
    struct: type[msgspec.Struct], prefix: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, meaning) of a struct's fields; those of a struct inside it follow by
    "key.inner"."""
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint, key = hints[field.name], prefix + field.encode_name
        inner = _nested(hint)
        if inner is not None and not field.required:
            yield from fields_of(inner, key + ".")
        else:
            yield code(key), type_name(hint), _default(field), plain(_described(hint))


FIELDS = ("Key", "Type", "Default", "Meaning")
