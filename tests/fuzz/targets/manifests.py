"""Files that describe boot sets (minos.json), and what an agent keeps of its session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.kraken.errors import LayercakeError
from minos.agent.state import SessionFile, token_mark
from minos.build import sets
from minos.build.profiles import Profile
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.minos.test_agent_state import ANSWER, config

PROFILE = Profile("gpu", modules=("storage",), firmware=("firmware-misc-nonfree",)).to_json()
SEEDS: list[Any] = [
    {
        "kernel_release": "6.1.0-18-amd64",
        "authorities": "ab",
        "python": "3.11",
        "size": 9,
        "profile": PROFILE,
    },
    {},
    [],
    "x",
    None,
    {
        **ANSWER,
        "node": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "boot_id": "b1",
        "token": token_mark("tok"),
    },
]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A set is shown whatever is in its description; a session that is damaged is none."""
    place, run = directory / "boot" / "0.2-ab", directory / "run"
    place.mkdir(parents=True)
    run.mkdir()
    for name in sets.FILES:
        (place / name).write_bytes(b"x")
    sessions, own = SessionFile(run), config(run)

    def take(data: bytes) -> None:
        (place / "minos.json").write_bytes(data)
        found = sets.load(directory / "boot", "0.2-ab")
        f"{found.kernel}{found.authorities}".encode()
        (run / "session.json").write_bytes(data)
        (run / "desired.json").write_bytes(data)
        sessions.load_desired()
        sessions.load(own)

    yield Target(mutate.documents(SEEDS), take, (LayercakeError,))
