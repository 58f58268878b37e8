"""Checks of the values that belong to no module: names, addresses, images. See moduleapi.fields for
what a check is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from layercake.base.text import nearest, show
from layercake.moduleapi.fields import LABEL, Mistake, mac, text

# As the image store has it; the inventory may not import the store.
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_NETWORK = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}", re.ASCII)
_RESERVED_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "broadcasthost")


def node_name(name: str) -> str:
    """A node's name: an RFC 1123 host name in lower case (it becomes a host name, a DNS name and
    part of file names)."""
    if not all(LABEL.fullmatch(label) for label in name.split(".")) or len(name) > 253:
        hint = (
            f"did you mean {name.lower()}?"
            if name != name.lower()
            else "lower-case letters, digits and inner hyphens, RFC 1123"
        )
        raise Mistake(f"{show(name)} is not a host name", hint)
    if not re.search("[a-z]", name) or name in _RESERVED_NAMES:
        raise Mistake(
            f"{show(name)} cannot be a node's name",
            "a name has a letter, and is not reserved as localhost is",
        )
    return name


def group_name(name: str) -> str:
    """A group's name, usable as @name in ranges."""
    if not _GROUP.fullmatch(name):
        raise Mistake(
            f"{show(name)} is not a group name",
            "a letter, then letters, digits, - or _, at most 32",
        )
    if name == "all":
        raise Mistake("a group cannot be called all", "@all already means every node")
    return name


def network_name(name: str) -> str:
    """A network's name."""
    if not _NETWORK.fullmatch(name):
        raise Mistake(
            f"{show(name)} is not a network's name",
            "lower-case letters, digits, . _ and -, at most 32",
        )
    return name


def macs(value: object) -> tuple[str, ...]:
    """The MAC addresses of one node: one, or a list of which the first is the one it boots from."""
    if not isinstance(value, list):
        return (mac(text(value)),)
    if not value:
        raise Mistake("the list of MAC addresses is empty")
    return tuple(mac(text(item)) for item in value)


def image(value: object, known: Iterable[str] | None) -> str:
    """One image name, and whether the store has it when `known` is given."""
    name = text(value)
    if not IMAGE.fullmatch(name):
        raise Mistake(
            f"{show(name)} is not an image name", "letters, digits, . _ and -, and perhaps one :tag"
        )
    if known is not None and name not in known:
        raise Mistake(
            f"there is no image {name}",
            nearest(name, known) or "add it with `layercake image add NAME FILE`",
        )
    return name
