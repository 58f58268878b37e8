"""A build takes neither the last of the head's disk or memory, nor for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from imageapi.build import tools
from imageapi.build.tools import LAST, Limits, available_memory, run
from layercake.kraken.errors import OperationFailed
from tests.build.conftest import Build

ALL = 1 << 60
FOR_EVER = ["sh", "-c", "sleep 3600 & echo begun; wait"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"seconds": 0.0}, "it took more than 0 s"),
        ({"disk": ALL}, "MiB are free on the disk of"),
        ({"memory": ALL}, "MiB of memory are free"),
    ],
)
def test_a_program_that_reaches_a_limit_is_ended_with_all_that_it_started(
    tmp_path: Path, limits: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "SHARE_OF_DISK", 1)  # nobody has all of it
    began = time.monotonic()
    with pytest.raises(OperationFailed, match=f"cannot wait: .*{why}"):
        run(FOR_EVER, "wait", "coreutils", limits=Limits(tmp_path, **limits))
    assert time.monotonic() - began < 1800.0, "its children held the pipe open"


def test_a_program_within_its_limits_is_left_alone(tmp_path: Path) -> None:
    lines: list[str] = []
    run(["echo", "well"], "say", "coreutils", None, lines.append, Limits(tmp_path))
    assert lines == ["well"]
    memory = available_memory()
    assert memory is not None and 0 < memory < ALL


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    words = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end"
    run(["sh", "-c", words], "say", "coreutils", dict(os.environ), lines.append)
    assert lines[-1] == "end" and len(lines) == 2 and len(lines[0]) < 200_000


def test_when_memory_ends_at_once_the_kernel_ends_a_build_first(tmp_path: Path) -> None:
    lines: list[str] = []
    run([*LAST, "cat", "/proc/self/oom_score_adj"], "look", "coreutils", None, lines.append)
    assert lines == ["1000"]


@pytest.mark.root
def test_a_step_of_a_dockerfile_that_does_not_end_is_ended(context: Path, make: Build) -> None:
    step = 'RUN ["/bin/sh", "-c", "echo asleep; sleep 7200"]\n'
    (context / "Dockerfile").write_text((context / "Dockerfile").read_text() + step)
    with pytest.raises(OperationFailed, match="it took more than 20 s: it was ended"):
        make(context, limit_s=20.0)
    assert "echo asleep" not in _commands(), "nothing of it stays"


def _commands() -> str:
    """The command lines of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)
