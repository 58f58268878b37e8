"""How rolls stand in the database: one document for a roll, and one for each few hundred of its nodes.

A step changes a few nodes of a hundred thousand. So only those parts are written that have one of them; the whole would be 10 MB
each time. What belongs together is written together (Database.change).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from layercake.head.rolls.facts import Kind, NodeRoll, Roll
from layercake.head.state.schema import BOOT_ROLLS, IMAGE_ROLLS, RESTORE_HINT, ROLL_PART, roll_part
from layercake.kraken.errors import InputError

T = TypeVar("T")


def written(roll: Roll, before: Roll | None) -> Mapping[str, Callable[[], bytes]]:
    """The documents that say how a roll is now, without those that say the same as `before`."""
    documents = {_key(roll): partial(msgspec.msgpack.encode, msgspec.structs.replace(roll, nodes={}))}
    if before is None or before.nodes is not roll.nodes:
        keys, nodes, had = list(roll.nodes), list(roll.nodes.values()), list(before.nodes.values()) if before else []
        for at in range(0, len(nodes), ROLL_PART):
            part = slice(at, at + ROLL_PART)
            if not had or not all(map(operator.is_, nodes[part], had[part])):
                some = dict(zip(keys[part], nodes[part], strict=True))
                documents[roll_part(_key(roll), at)] = partial(msgspec.msgpack.encode, some)
    return documents


def forgotten(roll: Roll) -> dict[str, Callable[[], bytes]]:
    """The documents that go with a roll, empty."""
    return dict.fromkeys([_key(roll), *(roll_part(_key(roll), at) for at in range(0, len(roll.nodes), ROLL_PART))], bytes)


def read(documents: Callable[[str], Mapping[str, bytes]]) -> dict[int, Roll]:
    """The rolls that were written, by their numbers, oldest first; `documents` gives those whose keys begin so. Raises InputError
    if one is damaged."""
    found = []
    for prefix in (IMAGE_ROLLS, BOOT_ROLLS):
        for key, data in documents(prefix).items():
            roll = _decoded(key, data, Roll)
            for part, nodes in sorted(documents(roll_part(key)).items()):
                roll.nodes.update(_decoded(part, nodes, dict[str, NodeRoll]))
            found.append(roll)
    return {roll.id: roll for roll in sorted(found, key=lambda r: r.id)}


def _key(roll: Roll) -> str:
    return f"{IMAGE_ROLLS if roll.kind is Kind.IMAGES else BOOT_ROLLS}{roll.id}"


def _decoded(key: str, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {key} in the database: {error}", hint=RESTORE_HINT) from None
