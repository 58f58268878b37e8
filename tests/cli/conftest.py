"""A canned API on a Unix socket and a way to run the CLI against it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layercake.cli.main import main
from layercake.client import watch
from tests.cli.canned_api import CannedApi


@dataclass(frozen=True)
class Result:
    """What one run gave."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def socket() -> Iterator[Path]:
    """A socket path short enough for the 108 bytes that Linux allows; tmp_path may be longer."""
    folder = Path(tempfile.mkdtemp(prefix="lc"))
    yield folder / "api.sock"
    shutil.rmtree(folder)


@pytest.fixture
def head(socket: Path) -> Iterator[CannedApi]:
    """A running canned API."""
    fake = CannedApi()
    fake.start(socket)
    yield fake
    fake.stop()


@pytest.fixture
def run(socket: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `layercake ...` against `socket`, without the waits that people need; `answer` is typed
    when it asks; what it asks is added to `asked`."""
    monkeypatch.setattr(watch, "STUCK_S", {"quarantined": 0.0, "blocked": 0.0})
    monkeypatch.setattr(watch, "GAP_S", 0.0)
    monkeypatch.setattr(watch, "SHARE", 0)
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    for name in ("LAYERCAKE_URL", "LAYERCAKE_TOKEN_FILE", "LAYERCAKE_CA"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, answer: str | None = None, asked: list[str] | None = None) -> Result:
        def prompt(text: str, **_: Any) -> bool:
            if asked is not None:
                asked.append(text)
            if answer is None:
                raise __import__("click").Abort
            return answer == "y"

        monkeypatch.setattr("click.confirm", prompt)
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
