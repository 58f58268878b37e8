"""What is kept of a node's boot sets: which it shall boot, and which it has booted."""

from __future__ import annotations

import msgspec


class Boots(msgspec.Struct, frozen=True):
    """Of which boot sets a node is. `wanted` is what it boots next, "" for the site's default;
    `runs` what it has booted, "" if that is not known. `agent` is the set whose agent it shall
    have, "" for that of what it has booted; `agent_runs` whose it has, "" if that one cannot be
    replaced in place. `since` is the session in which `wanted` was said, `ask` the number of the
    last order of an agent, and `agent_error` what became of it, if it failed.
    """

    wanted: str = ""
    runs: str = ""
    agent: str = ""
    agent_runs: str = ""
    since: int = 0
    ask: int = 0
    agent_error: str = ""
