"""What a simulated node plays of commands."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from layercake.sim.fleet.commands import played


@pytest.mark.parametrize(
    ("command", "seconds", "status", "out"),
    [
        (["true"], 0.0, 0, ""),
        (["false"], 0.0, 1, ""),
        (["echo", "a", "b"], 0.0, 0, "a b\n"),
        (["hostname"], 0.0, 0, "r7\n"),
        (["uname", "-n"], 0.0, 0, "r7\n"),
        (["sleep", "3"], 3.0, 0, ""),
        (["sleep", "60"], 5.0, None, ""),
        (["sleep", "x"], 0.0, 127, ""),
        (["reboot"], 0.0, 127, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_handful_of_commands_is_played(
    command: list[str], seconds: float, status: int | None, out: str
) -> None:
    took, answer = played("r7", {"kind": "exec", "command": command, "timeout_s": 5.0})
    assert (took, answer["exit"]) == (seconds, status)
    assert base64.b64decode(answer["out"]).decode() == out


@pytest.mark.parametrize(
    "more", [{"container": "web"}, {"kind": "logs"}, {"kind": "copy"}], ids=str
)
def test_there_are_no_images_and_files(more: dict[str, Any]) -> None:
    request = {"kind": "exec", "command": ["true"], "timeout_s": 5.0, **more}
    assert played("r7", request)[1]["ok"] is False
