"""The nodes of a slurmctld, as scontrol shows them: by its JSON where it has it (since Slurm
23.02), else by its lines, which are for people.

In a line, values may hold anything: a node's comment may say "State=IDLE", and what comes behind
the reason has changed with versions (`Comment=`, `Extra=`). So a state is what stands before the
first text that a person chose, and a reason ends at its stamp.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import OperationFailed, Unreachable

_WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_OURS = re.compile(r"layercake roll ([0-9]{1,9})", re.ASCII)
_NAME = re.compile(r"NodeName=(\S+)\s")
_STATE_IN_ITS_PLACE = re.compile(r"\sState=(\S+) ThreadsPerCore=")
_STATE = re.compile(r"\sState=(\S+)")
_STAMPED = re.compile(r"\sReason=(.*?) \[[^\[\]\s]*@[^\[\]\s]*\](?=\s|$)")
_FOLLOWS = "(?:Comment|Extra|Instance(?:Id|Type)|ResumeAfterTime|ResumeAfter|Topology|OS)="
_UNSTAMPED = re.compile(rf"\sReason=(.*?)\s*(?=\s{_FOLLOWS}|$)")
_FREE_TEXT = re.compile(r"\s(?:Comment|Extra|Reason)=")
_SIGNS = "*~#!%$@^-+"
_AT_ONCE = 200
LIMIT_S = 30.0
"""How long scontrol may take; a slurmctld that is away keeps it that long at most."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as slurmctld has it: the words of its state ("IDLE", "DRAIN", ...) and why it is
    drained."""

    states: frozenset[str]
    reason: str = ""

    @property
    def drained(self) -> bool:
        """Whether nothing runs there and nothing will begin."""
        return "DRAIN" in self.states and not self.states & _WORKING

    @property
    def roll(self) -> int:
        """The roll that it was drained for, 0 for none."""
        match = _OURS.fullmatch(self.reason) if "DRAIN" in self.states else None
        return int(match[1]) if match else 0


class Scontrol:
    """A real slurmctld, by the program scontrol and a slurm.conf."""

    def __init__(self, conf: str) -> None:
        self._conf = conf
        self._has_json = True

    async def _run(self, what: str, *words: str) -> str:
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "SLURM_CONF": self._conf,
            "LC_ALL": "C.UTF-8",
        }
        try:
            process = await asyncio.create_subprocess_exec(
                "scontrol",
                *words,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except FileNotFoundError:
            raise OperationFailed(
                f"cannot {what}: scontrol is not installed", hint="apt-get install slurm-client"
            ) from None
        try:
            async with asyncio.timeout(LIMIT_S):
                out, trouble = await process.communicate()
        except TimeoutError:
            raise Unreachable(
                f"cannot {what}: slurmctld does not answer", hint="look at it: scontrol ping"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = (trouble or out).decode("utf-8", "replace").strip().splitlines()
            raise OperationFailed(
                f"cannot {what}: {lines[-1] if lines else 'scontrol has failed'}"[:400],
                hint=f"try it: SLURM_CONF={self._conf} scontrol ping",
            )
        return out.decode("utf-8", "replace")

    async def nodes(self) -> dict[str, SlurmNode]:
        """By `scontrol show nodes`. Raises LayercakeError."""
        what = "read Slurm's nodes"
        if self._has_json:
            try:
                return parse_json(await self._run(what, "--json", "show", "nodes"))
            except Unreachable:
                raise
            except OperationFailed:
                nodes = parse(await self._run(what, "-o", "show", "nodes"))
                self._has_json = False  # it answers, and has no JSON: Slurm before 23.02
                return nodes
        return parse(await self._run(what, "-o", "show", "nodes"))

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """By State=DRAIN."""
        await self._update("drain", names, "State=DRAIN", f"Reason={reason}")

    async def resume(self, names: Sequence[str]) -> None:
        """By State=RESUME."""
        await self._update("resume", names, "State=RESUME")

    async def _update(self, what: str, names: Sequence[str], *words: str) -> None:
        for start in range(0, len(names), _AT_ONCE):
            some = ",".join(names[start : start + _AT_ONCE])
            await self._run(f"{what} {some[:200]}", "update", f"NodeName={some}", *words)


def parse(text: str) -> dict[str, SlurmNode]:
    """The nodes of `scontrol -o show nodes`, one in a line. A state is words with "+" between, some
    ending in a sign."""
    nodes = {}
    for line in text.splitlines():
        name = _NAME.match(line)
        free_text = _FREE_TEXT.search(line)
        end = free_text.start() if free_text else len(line)
        state = _STATE.search(line, 0, end) or _STATE_IN_ITS_PLACE.search(line)
        if name and state:
            nodes[name[1]] = SlurmNode(_state_words(state[1].split("+")), _reason(line))
    return nodes


def _reason(line: str) -> str:
    """Why a node is drained. A reason has a stamp ("[root@2026-11-21T15:00:00]"); without one it
    ends where another key begins."""
    match = _STAMPED.search(line) or _UNSTAMPED.search(line)
    return match[1] if match else ""


def _state_words(states: Sequence[str]) -> frozenset[str]:
    return frozenset(state.upper().rstrip(_SIGNS) for state in states)


def parse_json(text: str) -> dict[str, SlurmNode]:
    """The nodes of `scontrol --json show nodes`. Raises OperationFailed for what is none."""
    try:
        listed = json.loads(text)["nodes"]
        return {str(node["name"]): _node(node) for node in listed}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise OperationFailed(
            f"cannot read Slurm's nodes: scontrol's JSON is not as known: {error!r:.200}"
        ) from None


def _node(node: dict[str, Any]) -> SlurmNode:
    """A state is a list of words, or one with more words beside it (Slurm 21.08, 22.05)."""
    state = node["state"]
    states = [*([state] if isinstance(state, str) else state), *(node.get("state_flags") or ())]
    words = [word for one in states for word in one.split("+")]
    return SlurmNode(_state_words(words), str(node.get("reason") or ""))
