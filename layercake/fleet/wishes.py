"""The head's own keys of a node in the inventory: how careful to be with it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.inventory.schema import Node
from layercake.moduleapi.fields import Check, Mistake, number, text
from layercake.moduleapi.module import NodePart

_MOST = 100


_KEY = re.compile(
    r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)"
    r"|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
    r" [A-Za-z0-9+/]{40,8192}={0,3}( [ -~]{0,200})?"
)
_MOST_KEYS = 100
_LABEL = re.compile(r"[A-Za-z0-9_./-]{1,63}")


def authorized_keys(value: object) -> list[str]:
    """Public keys as they stand in a .pub file."""
    if not isinstance(value, list) or len(value) > _MOST_KEYS:
        raise Mistake(
            f"expected a list of up to {_MOST_KEYS} public keys, found {describe(value)}",
            'write ["ssh-ed25519 AAAA..."]',
        )
    for item in value:
        if not _KEY.fullmatch(text(item)):
            raise Mistake(
                f"{show(text(item)[:60])} is no public key of SSH",
                'the line of a .pub file: "ssh-ed25519 AAAA... name"',
            )
    return list(value)


def labels(value: object) -> dict[str, str]:
    """What a site calls a node by: {key: value}."""
    if not isinstance(value, dict) or len(value) > _MOST_KEYS:
        raise Mistake(
            f"expected a mapping of up to {_MOST_KEYS} labels, found {describe(value)}",
            "as {rack: r7, owner: physics}",
        )
    found = {}
    for key, its in value.items():
        word = str(its) if isinstance(its, int) and not isinstance(its, bool) else its
        if not isinstance(key, str) or not _LABEL.fullmatch(key):
            raise Mistake(f"{show(str(key))} is no label's key", "1 to 63 of a-z A-Z 0-9 _ . / -")
        if not isinstance(word, str) or not _LABEL.fullmatch(word):
            raise Mistake(
                f"label {key}: {show(str(its))} is no label's value",
                "1 to 63 of a-z A-Z 0-9 _ . / -; quote true and false",
            )
        found[key] = word
    return found


class Wishes(NodePart, frozen=True, kw_only=True):
    """What may be done to a node without asking."""

    remedy: Annotated[
        Literal["auto", "hold", "never"],
        Meta(
            description="Whether a node that has fallen silent is started anew: by itself, when a "
            "person says so, never."
        ),
    ] = "auto"
    adopt: Annotated[
        Literal["ask", "reset"],
        Meta(
            description="What happens to a machine that is found running: it is left alone, or "
            "started anew."
        ),
    ] = "ask"
    priority: Annotated[
        int,
        Check(number(-_MOST, _MOST, "a whole number")),
        Meta(
            description="Of nodes that wait for others' boots, those with more go first; -100 to "
            "100."
        ),
    ] = 0
    labels: Annotated[
        dict[str, str],
        Check(labels, merged=True),
        Meta(
            description="What the site calls it by: {rack: r7, owner: physics}. Layers are put "
            "over each other key by key; "
            "`node list --where 'label:rack=r7'` asks for them."
        ),
    ] = msgspec.field(default_factory=dict)
    authorized_keys: Annotated[
        list[str],
        Check(authorized_keys),
        Meta(description="Public keys of SSH that root's authorized_keys has in the images."),
    ] = msgspec.field(default_factory=list)


def wishes(node: Node) -> Wishes:
    """What the inventory says of how careful to be with a node."""
    found = node.parts.get("head")
    return found if isinstance(found, Wishes) else Wishes()
