"""Which keys there are, and how the value of each is read: those of every node, and those of the
modules' parts."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from layercake.base.text import nearest
from layercake.inventory import fields, schema
from layercake.moduleapi.fields import Check, Mistake, host_ip, ip_after, mac_after, one_of, text
from layercake.moduleapi.module import Part

_PLACE = re.compile(r" - at `\$\.?([^`]*)`")


def _profile(value: Any) -> str:
    name = text(value)
    if not schema.PROFILE.fullmatch(name):
        raise Mistake(
            f"{name[:64]!r} is no name of a boot profile",
            "a to z, 0 to 9 and - are allowed, 32 at most",
        )
    return name


NODE: dict[str, Check] = {
    "arch": Check(one_of(*schema.ARCHES)),
    "firmware": Check(one_of(*schema.FIRMWARES)),
    "state": Check(one_of(*schema.STATES)),
    "profile": Check(_profile),
    "network": Check(lambda value: fields.network_name(text(value))),
    "mac": Check(fields.macs, lambda word, steps: (mac_after(word, steps),), own=True),
    "ip": Check(lambda value: host_ip(text(value)), ip_after, own=True),
}
"""The keys of every node whose values are read by themselves; images and groups are lists."""


LISTS = ("images", "groups")


GROUP: dict[str, Check] = {"domain": Check(lambda value: converted(value, bool))}
"""The keys of a group itself: whether its nodes share what they can lose together, a switch or a
power supply."""


@functools.cache
def rules_of(struct: type[msgspec.Struct]) -> Mapping[str, Check]:
    """The rules of a struct's fields: by their Check, or by their type."""
    hints = typing.get_type_hints(struct, include_extras=True)
    fields = msgspec.structs.fields(struct)
    return MappingProxyType({f.encode_name: _rule(hints[f.name], f.required) for f in fields})


def _rule(hint: Any, required: bool) -> Check:
    checks = (one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Check))
    check = next(checks, Check(lambda value: converted(value, hint)))
    return replace(check, required=required)


def converted(value: Any, hint: Any) -> Any:
    """A plain value as a type that msgspec knows. Raises Mistake."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        reason = _PLACE.sub("", str(error)).replace("`", "")
        raise Mistake(
            reason[:1].lower() + reason[1:] + (f" in {place[1]}" if place and place[1] else "")
        ) from None


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of an inventory: those that stand among a node's own, and those in a mapping ("bmc":
    {"address": ...}). `named` are the mappings whose keys are names that the site gives, with the
    keys of each entry ("interfaces": {"mtu": ...})."""

    own: Mapping[str, Check]
    nested: Mapping[str, Mapping[str, Check]] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, Check]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Part]) -> Keys:
        """The keys of every node and of these parts, by module."""
        own = dict(NODE)
        nested = {}
        named = {}
        for part in parts.values():
            if part.struct.ENTRY is not None:
                named[part.key] = rules_of(part.struct.ENTRY)
            elif part.key:
                nested[part.key] = rules_of(part.struct)
            else:
                own |= rules_of(part.struct)
        return cls(own, nested, named)

    def at_first(self) -> set[str]:
        """What may stand first in a node's entry."""
        return {*self.own, *LISTS, *self.nested, *self.named}

    def unknown(self, key: str) -> str | None:
        """What may have been meant by a key that no node has, as "kernel_arg" or "bmc.adress", as a
        hint; None for one that there is. What stands below a name that the site gives, or in a
        value, is not looked at."""
        first, _, rest = key.partition(".")
        if first not in self.at_first():
            return nearest(first, self.at_first())
        inner = rest.partition(".")[0]
        if not inner or first not in self.nested or inner in self.nested[first]:
            return None
        return nearest(inner, self.nested[first])
