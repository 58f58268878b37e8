"""Node ranges, as they come with requests and stand in inventories."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from layercake.inventory.ranges import MAX_NODES, expand, fold, names_of
from layercake.kraken.errors import InputError
from tests.fuzz import mutate
from tests.fuzz.harness import Target

SEEDS = (
    b"n0",
    b"n[0-3,7]",
    b"rack[1-2]n[01-16]",
    b"@all",
    b"@ipmi!n3",
    b"n[0-9]!n3",
    b"n[1-9/2]&n[2-4]^n5",
    b"n0,n4,@ipmi",
    b"n1!n1",
    b"n[0-999999999]",
    b"n[00-10]x[3]",
    b"n-1.example",
    b"@a@b",
)
WORDS = (
    b"[",
    b"]",
    b"-",
    b",",
    b"!",
    b"&",
    b"^",
    b"@",
    b"@all",
    b"/",
    b"0-9",
    b"[0-65535]",
    b"[1-99999999]",
    b"00",
    b"n",
    "\u00b2".encode(),
    b" ",
)


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A rack of forty nodes."""
    known = [f"n{number}" for number in range(40)]

    def take(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        found = expand(text, known, {"ipmi": known[:9], "a": [], "b": known[20:]})
        assert found and set(found) <= set(known) and expand(fold(found), known) == found
        if "@" not in text:
            assert len(names_of(text)) <= MAX_NODES

    def spelled(data: bytes) -> None:
        with contextlib.suppress(InputError):
            take(data)
        names_of(data.decode("utf-8", "replace"))

    yield Target(mutate.data(SEEDS, WORDS), spelled, (InputError,))
