"""The boot sets of the site: which there are, which one a node boots, and the agents that are handed over out of them."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from layercake.kraken.errors import InputError, LayercakeError
from minos.agent.swap import signed
from minos.build import sets
from minos.build.sets import BootSet

log = logging.getLogger("layercake.boots")
DOCUMENT = "boot/default"


class Boots(msgspec.Struct, frozen=True):
    """Of which boot sets a node is. `wanted` is what it boots next, "" for the site's default; `runs` what it has booted, "" if
    that is not known. `agent` is the set whose agent it shall have, "" for that of what it has booted; `agent_runs` whose it has,
    "" if that one cannot be replaced in place. `since` is the session in which `wanted` was said, `ask` the number of the last
    order of an agent, and `agent_error` what became of it, if it failed.
    """

    wanted: str = ""
    runs: str = ""
    agent: str = ""
    agent_runs: str = ""
    since: int = 0
    ask: int = 0
    agent_error: str = ""


class BootSets:
    """What is below boot/ in the data directory. `sign` is the signature of the head's authority, None on a head without one."""

    def __init__(self, directory: Path, sign: Callable[[bytes], bytes | None]) -> None:
        self.directory = directory
        self._sign = sign
        self._order = lru_cache(maxsize=8)(self._made)
        self.default = ""

    def load(self, default: str) -> None:
        """Takes over what an earlier head called the default. Without one it is the newest that there is."""
        adopted = sets.adopt(self.directory, clear=True)
        found = self.all()
        newest = found[0] if found else _NONE
        self.default = default if any(s.name == default for s in found) else (adopted or newest).name

    def all(self) -> list[BootSet]:
        """All sets, newest first."""
        return sets.all_of(self.directory)

    def get(self, name: str) -> BootSet:
        """A set by its name. Raises NotFound."""
        return sets.load(self.directory, name)

    def of(self, boots: Boots) -> str:
        """The set that a node boots next, "" on a head that has none. From memory: it is asked for each node."""
        return boots.wanted or self.default

    def agent(self, name: str) -> bytes:
        """The agent of a set. Raises NotFound, and InputError for a set without one."""
        path = self.get(name).directory / sets.AGENT
        try:
            return path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot hand over the agent of {name}: {error.strerror}",
                             hint="build a new set: `layercake boot build`") from None

    def order(self, boots: Boots) -> dict[str, Any] | None:
        """What a node is told of the agent that it shall have (minos.agent.swap); None if it has the one that is wanted, or none
        can be handed over."""
        if not boots.agent or boots.agent == boots.agent_runs or not boots.agent_runs:
            return None
        if boots.agent == boots.runs:
            return {"set": boots.agent, "ask": boots.ask}  # its own: there is nothing to hand over
        try:
            made = self._order(boots.agent)
        except LayercakeError as error:  # the rest of what the node is told does not depend on it
            log.error("%s", error)
            return None
        return None if made is None else {**made, "ask": boots.ask}

    def _made(self, name: str) -> dict[str, Any] | None:
        data = self.agent(name)
        digest = hashlib.blake2b(data, digest_size=32).hexdigest()
        signature = self._sign(signed(name, digest, len(data)))
        return None if signature is None else {
            "set": name, "digest": digest, "size": len(data), "signature": base64.b64encode(signature).decode()}


_NONE = BootSet("", Path(), 0.0, "", 0, agent=False)
