"""What an agent is told by its head: the answer to a join, and the documents that say what is
wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from imageapi.spec.image import parse_images
from imageapi.spec.state import ImageState
from layercake.base.text import parse_json
from layercake.kraken.errors import LayercakeError
from minos.agent.drivers import answer as described
from minos.agent.machine import Machine
from minos.agent.state import SessionFile, parse_join
from minos.agent.wanted import Wanted
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.targets.spec import IMAGE, RBD
from tests.minos.test_agent_state import ANSWER, config

DOCUMENT: dict[str, Any] = {
    "revision": 4,
    "goal": {"power": "ON", "run": "SYNC", "image": "ACTIVE"},
    "images": [IMAGE],
    "stage": [{**IMAGE, "attach": RBD}],
    "requests": [
        {"id": 1, "kind": "clear"},
        {"id": 2, "kind": "logs", "container": "one", "lines": 20},
        {"id": 3, "kind": "x"},
    ],
    "agent": {"set": "0.2-ab", "digest": "0" * 64, "size": 9, "signature": "AA==", "ask": 1},
    "trust": {"authorities": "ab", "certificate": 2},
}


@contextlib.contextmanager
def answer(directory: Path) -> Iterator[Target]:
    """A session comes of an answer, is kept, and is the same when it is read again."""
    file, own = SessionFile(directory), config(directory)

    def take(data: bytes) -> None:
        session = parse_join(_read(data))
        file.save(own, session)
        again = file.load(own)
        assert again is not None and (again.number, again.key, again.sync) == (
            session.number,
            session.key,
            session.sync,
        )

    tls = {"tls": {"cert": "C", "key": "K"}, "mutual": True, "certificate": 2}
    yield Target(mutate.documents([ANSWER, {**ANSWER, **tls}], 0.05), take, (LayercakeError,))


PART: dict[str, Any] = {"digest": "0" * 64, "size": 9}
DRIVERS: dict[str, Any] = {
    "devices": {"pci:v00008086d000025AB": ["i6300esb", "gpu"]},
    "modules": {
        "i6300esb": {**PART, "needs": ["watchdog", "i6300esb"], "firmware": {"a/b.bin": PART}},
        "watchdog": PART,
        "gpu": {"held": "nobody looks"},
        "big": {"error": "it is too big"},
    },
}


@contextlib.contextmanager
def drivers(directory: Path) -> Iterator[Target]:
    """What the head says of drivers is taken, or refused as a whole; what is taken leads out of no
    directory."""

    def take(data: bytes) -> None:
        devices, modules = described(_read(data))
        for names in (*devices.values(), *(module.needs for module in modules.values())):
            assert all("/" not in modules[name].name for name in names)
        for module in modules.values():
            assert not [
                path for path in module.firmware if path.startswith("/") or ".." in path.split("/")
            ]
            assert module.part is not None or module.held or module.error

    yield Target(mutate.documents([DRIVERS], 0.05), take, (LayercakeError,))


class _Parts:
    """The images and the link of an agent that has nothing to do: they check what they are
    given."""

    def want_documents(self, images: Sequence[Mapping[str, Any]]) -> bool:
        with contextlib.suppress(LayercakeError):
            return bool(parse_images(list(images)))
        return False

    def stage_documents(self, images: Sequence[Mapping[str, Any]], anew: bool) -> None:
        self.want_documents(images)

    def state(self) -> ImageState:
        return ImageState.IDLE

    def logs(self, name: str, lines: int) -> str:
        return ""

    def nothing(self, *args: Any, **more: Any) -> None:
        """Nobody asks."""

    clear = submit = interrupt = answer = tell = trim_logs = nothing

    def watched(self) -> dict[int, str]:
        return {}

    def ended(self, name: str) -> str:
        return "IDLE"


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A document is taken, or refused as a whole: the agent goes on with what it had."""
    parts: Any = _Parts()
    machine = Machine(parse_join(ANSWER), parts, parts.nothing, lambda: 1.0, lambda: 0.5)
    wanted = Wanted(parts, machine, parts, SessionFile(directory), parts.interrupt)

    def take(data: bytes) -> None:
        wanted.accept(_read(data))

    yield Target(
        mutate.documents([DOCUMENT, {**DOCUMENT, "requests": [], "stage": []}], 0.05),
        take,
        (LayercakeError,),
        wanted.head_restarted,
    )


def _read(data: bytes) -> Any:
    """As the agent's link does."""
    try:
        return parse_json(data)
    except ValueError:
        return {}
