"""What is known of a part's mutants: in a file that a run adds to, so that the next one goes on
where it ended; and those that no test can kill, in `equivalents.toml`."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.mutants import Mutant
from tests.mutate.runner import Verdict

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")


def digest(texts: list[str]) -> str:
    """Of files: another one if any has changed."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()


class Record:
    """The verdicts on mutants, as lines of JSON.

    A verdict holds as long as the mutant's file is what it was; that it lives, as long as the tests
    are, too.
    """

    def __init__(self, file: Path, code: dict[str, str], tests: str) -> None:
        self._file = file
        self._code = {path: digest([text]) for path, text in code.items()}
        self._tests = tests
        self._verdicts: dict[str, Verdict] = {}
        for line in file.read_text().splitlines() if file.exists() else []:
            data = json.loads(line)
            holds = data["code"] in self._code.values()
            if holds and (data["by"] or data["tests"] == tests):
                self._verdicts[data["key"]] = Verdict(bool(data["by"]), data["by"], data["seconds"])

    def get(self, mutant: Mutant) -> Verdict | None:
        """What is known of it."""
        return self._verdicts.get(mutant.key)

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        """Kept at once."""
        self._verdicts[mutant.key] = verdict
        line = {
            "key": mutant.key,
            "by": verdict.by,
            "seconds": round(verdict.seconds, 1),
            "code": self._code[mutant.path],
            "tests": self._tests,
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Equivalent:
    """A change that makes no difference that a test could see."""

    path: str
    scope: str
    change: str
    why: str
    nth: int | None = None
    """Of several equal changes in the same function only this one, counted from 0."""

    def is_for(self, mutant: Mutant) -> bool:
        """Whether a mutant is this one."""
        same = (self.path, self.scope, self.change) == (mutant.path, mutant.scope, mutant.change)
        return same and self.nth in (None, mutant.nth)


def equivalents(file: Path = EQUIVALENTS) -> list[Equivalent]:
    """All that are named."""
    return [Equivalent(**entry) for entry in tomllib.loads(file.read_text())["equivalent"]]
