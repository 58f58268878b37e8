"""Inputs made of good ones: bytes that are changed a little, and JSON whose values are
exchanged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

_MOST, _MOST_TEXT = 1 << 16, 1 << 20
_NUMBERS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"-1",
    b"0",
    b"65536",
    b"99999999999999999999",
    b"1e999",
)
_ODD = (
    "",
    "\0",
    "\ud800",
    "\u00b2",
    "\U0010ffff",
    "\r\n",
    "..",
    "/",
    "../../etc/passwd",
    "a" * 300,
    "{",
    "%",
    "@",
    "n[0-9]",
    "null",
    "-0",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    65536,
    1 << 31,
    1 << 64,
    -(1 << 70),
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    *_ODD,
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": None},
    {"a": {"b": {}}},
    "9" * 5000,
    "x" * 20_000,
)
_DEEP = b"[" * 20_000
Make = Callable[[random.Random], bytes]


def data(seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> Make:
    """Makes bytes out of seeds; `words` are what the format knows, put in here and there."""

    def make(chance: random.Random) -> bytes:
        found = bytearray(chance.choice(seeds))
        while True:
            _change(chance, found, seeds, words)
            if chance.random() < 0.5 or len(found) > _MOST:
                return bytes(found[:_MOST])

    return make


def _change(
    chance: random.Random, found: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]
) -> None:
    at = chance.randrange(len(found) + 1)
    what = chance.randrange(8)
    if what == 0 and at < len(found):
        found[at] ^= 1 << chance.randrange(8)
    elif what == 1 and at < len(found):
        found[at] = chance.randrange(256)
    elif what == 2:
        found[at:at] = chance.randbytes(chance.randrange(1, 9))
    elif what == 3:
        del found[at : at + chance.randrange(1, 17)]
    elif what == 4:
        found[at:at] = found[at : at + chance.randrange(1, 65)] * chance.randrange(1, 5)
    elif what == 5:
        other = chance.choice(seeds)
        found[at:] = other[chance.randrange(len(other) + 1) :]
    elif what == 6:
        found[at : at + chance.choice((0, 0, 1, 4))] = (
            chance.choice(words) if words else chance.choice(_NUMBERS)
        )
    else:
        found[at : at + chance.choice((0, 1, 4))] = chance.choice(_NUMBERS)


def documents(seeds: Sequence[Any], rough: float = 0.2) -> Make:
    """Makes JSON out of documents: keys go, come and change places, values become odd ones; a share
    of `rough` of them is changed as bytes, so that it may be no JSON."""
    texts = [json.dumps(seed) for seed in seeds]
    raw = data([text.encode() for text in texts] + [_DEEP])

    def make(chance: random.Random) -> bytes:
        if chance.random() < rough:
            return raw(chance)
        text = chance.choice(texts)
        for _ in range(chance.randrange(1, 4)):
            changed = json.dumps(_exchange(chance, json.loads(text)))
            text = changed if len(changed) <= _MOST_TEXT else text
        return text.encode()

    return make


def _exchange(chance: random.Random, found: Any) -> Any:
    """The document with one value below it changed, at any depth."""
    if isinstance(found, dict) and found and chance.random() < 0.95:
        key = chance.choice(list(found))
        what = chance.random()
        if what < 0.6:
            found[key] = _exchange(chance, found[key])
        elif what < 0.7:
            del found[key]
        elif what < 0.8:
            found[chance.choice(_ODD)] = found[key]
        elif what < 0.9:
            found[key] = chance.choice(_VALUES)
        else:
            found[key] = found[chance.choice(list(found))]
        return found
    if isinstance(found, list) and found and chance.random() < 0.9:
        at = chance.randrange(len(found))
        what = chance.random()
        if what < 0.7:
            found[at] = _exchange(chance, found[at])
        elif what < 0.8:
            del found[at]
        elif what < 0.9:
            found *= chance.choice((2, 50))
        else:
            found.insert(at, chance.choice(_VALUES))
        return found
    if isinstance(found, str) and found and chance.random() < 0.5:
        at = chance.randrange(len(found))
        return (
            found[:at]
            + chance.choice((*_ODD, chr(chance.randrange(1, 0x3000))))
            + found[at + chance.randrange(2) :]
        )
    return chance.choice(_VALUES)
