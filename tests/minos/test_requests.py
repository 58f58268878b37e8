"""What a head asks a node for is begun once, also where the node comes to another head then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from imageapi.spec.state import ImageState
from minos.agent.machine import Machine
from minos.agent.state import SessionFile, parse_join
from minos.agent.wanted import Wanted
from tests.minos.test_agent_state import ANSWER


class Begun:
    """The commands that were begun, and those that are not called off."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.left: Set[str] = set()

    def begin(
        self, request: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self.keys.append(request["key"])

    def cancel_others(self, keys: Set[str]) -> None:
        self.left = keys


def document(revision: int, *numbers: int) -> dict[str, Any]:
    requests = [{"id": n, "kind": "exec", "key": f"k{n}", "command": ["true"]} for n in numbers]
    return {"revision": revision, "goal": {"run": "SYNC"}, "requests": requests}


def test_what_another_head_asks_for_is_begun_once_whenever_all_is_told_anew(tmp_path: Path) -> None:
    """The node takes the request at once, and comes to fetch all else in its turn."""
    images: Any = Mock()
    images.want_documents.return_value = False
    images.state.return_value = ImageState.IDLE
    images.watched.return_value = {}
    begun = Begun()
    machine = Machine(parse_join(ANSWER), images, Mock(), lambda: 1.0, lambda: 0.5)
    wanted = Wanted(images, machine, Mock(), SessionFile(tmp_path), Mock(), commands=begun)
    wanted.accept(document(8, 77))
    wanted.head_restarted()
    wanted.accept(document(8, 77))
    assert begun.keys == ["k77"] and begun.left == {"k77"}
    wanted.accept(document(9))
    wanted.accept(document(10, 77))
    assert begun.keys == ["k77", "k77"], "a number that is asked anew is another request"
