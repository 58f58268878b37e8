"""The heads of the site that a node knows, the one that acts first, and the highest epoch that one
of them has told.

The first ones come with the kernel command line, the others in the desired state. They are kept in
RUN/heads.json for the next agent. Where there is one head there is nothing to keep.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercake.base.files import read_json, write_json
from layercake.kraken.errors import LayercakeError
from layercake.kraken.wire import MOST_EPOCHS
from minos.agent.head_link.sync import Epochs
from minos.agent.http.client import parse_url
from minos.agent.state import Config, parse_endpoint

MOST = 16
"""Heads that a node keeps."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a head is reached: `url` by TLS, `sync` (HOST:PORT) by datagrams."""

    url: str
    sync: str


class KnownHeads:
    """The heads. Any thread may use it."""

    def __init__(self, config: Config) -> None:
        self._file = config.run / "heads.json"
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        known = _read(config)
        self._heads = _parsed(known.get("heads")) or [
            Head(config.head, config.sync),
            *(Head(url, sync) for url, sync in config.other_heads),
        ]
        self.epochs = Epochs(_epoch(known), self._write)

    def in_turn(self) -> list[Head]:
        """All of them, in the order in which to ask: the one that acts first."""
        return self._heads

    @property
    def several(self) -> bool:
        """Whether there is another one to ask."""
        return len(self._heads) > 1

    def joined(self, sync: str) -> None:
        """The head that took the node in speaks by datagrams there; of several heads that is known
        already."""
        if not self.several:
            self._heads = [dataclasses.replace(self._heads[0], sync=sync)]

    def act(self, head: Head) -> None:
        """This one has answered, and the one before has not: it acts."""
        with self._lock:
            if head in self._heads[1:]:
                self._heads = [head, *(other for other in self._heads if other != head)]
                self._write()

    def learn(self, document: object) -> bool:
        """Takes over what a head says of the heads in a desired state. False: it is one of an epoch
        that is over, and nothing that it says counts."""
        told = document if isinstance(document, Mapping) else {}
        if not self.epochs.accept(_epoch(told)):
            return False
        with self._lock:
            heads = _parsed(told.get("heads")) or self._heads[:1]
            if heads != self._heads:
                self._heads = heads
                self._write()
        return True

    def _write(self) -> None:
        with self._writing:
            heads = [{"url": head.url, "sync": head.sync} for head in self._heads]
            write_json(self._file, {"heads": heads, "epoch": self.epochs.highest})


def _read(config: Config) -> Mapping[str, Any]:
    """What an agent of this boot has kept: RUN does not outlive it."""
    try:
        found = read_json(config.run / "heads.json")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _epoch(told: Mapping[str, Any]) -> int:
    epoch = told.get("epoch")
    return epoch if type(epoch) is int and 0 <= epoch <= MOST_EPOCHS else 0


def _parsed(told: object) -> list[Head]:
    """The heads in a list, as far as they are well-formed."""
    found = []
    for entry in told[:MOST] if isinstance(told, list) else []:
        try:
            head = Head(str(entry["url"]), str(entry["sync"]))
            parse_url(head.url)
            parse_endpoint(head.sync)
        except (KeyError, TypeError, LayercakeError):
            continue
        if head.url.startswith("https://") and head not in found:
            found.append(head)
    return found
