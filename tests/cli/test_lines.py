"""What is shown as several lines is several lines, and what a machine said is never more than
one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from layercake.client.command import Answer
from layercake.client.output import Output
from tests.cli.canned_api import CannedApi

ROLLS = [{"id": 3, "nodes": ["n0"]}, {"id": 4, "nodes": ["n1"]}]
BEGUN = [
    "roll 3: n0; see `layercake roll status 3 --follow`",
    "roll 4: n1; see `layercake roll status 4 --follow`",
]


@pytest.mark.parametrize(
    ("request_line", "answer", "words", "shown"),
    [
        pytest.param(
            "POST /v1/machines/adopt",
            {"entries": ["n8: {mac: 1}", "n9: {mac: 2}"], "machines": []},
            ["machine", "adopt", "--name", "n[8-9]", "--ip", "10.1.0.8"],
            ["nodes:", "  n8: {mac: 1}", "  n9: {mac: 2}"],
            id="machine adopt",
        ),
        pytest.param(
            "POST /v1/images/roll",
            {"nodes": ["n0", "n1"], "rolls": ROLLS},
            ["image", "roll", "n[0-1]", "debian", "--no-wait", "--yes"],
            BEGUN,
            id="image roll",
        ),
        pytest.param(
            "PATCH /v1/nodes/n0",
            {"changed": ["n0"], "rolls": ROLLS},
            ["node", "set", "n0", "images=[two]"],
            ["n0 is changed; write it into the inventory too", *BEGUN],
            id="node set",
        ),
    ],
)
def test_several_lines(
    head: CannedApi,
    run: Callable[..., Any],
    request_line: str,
    answer: dict[str, Any],
    words: list[str],
    shown: list[str],
) -> None:
    head.answers[request_line] = (200, answer)
    assert run(*words).out.splitlines() == shown


def test_a_line_stays_a_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    Answer({}, ("n0: said", "well\nall is well")).print(Output())
    assert capsys.readouterr().out == "n0: said\nwell\\nall is well\n"
