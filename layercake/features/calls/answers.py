"""What is answered about what modules can be asked."""

from __future__ import annotations

from typing import Any

import msgspec


class CallShown(msgspec.Struct):
    """What a module can be asked, with JSON schemas of request and answer."""

    name: str
    module: str
    summary: str
    role: str
    per_node: bool
    request: dict[str, Any]
    answer: dict[str, Any]


class CallList(msgspec.Struct):
    """All calls."""

    calls: list[CallShown]


class CallAnswer(msgspec.Struct):
    """The answer of a call of one node, or why there is none."""

    node: str
    ok: bool
    answer: Any
    error: str
    hint: str


class CallAnswers(msgspec.Struct):
    """The answers, one for each node."""

    answers: list[CallAnswer]
