"""The linters, the types and the import contract are tests: one command runs all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from headrun import CACHE

ROOT = Path(__file__).resolve().parents[2]
CODE = ["layercake", "pxe", "powerman", "imageapi", "minos", "vm-testbed", "docs"]
COMMANDS = {
    "ruff": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "--diff", "."],
    "mypy": ["-m", "mypy", "--cache-dir", str(CACHE / "mypy"), *CODE, "tests"],
    "imports": ["-c", "from importlinter.cli import lint_imports_command as c; c()"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_linter_is_content(name: str) -> None:
    done = subprocess.run(
        [sys.executable, *COMMANDS[name]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_code_is_that_of_the_proto_file(tmp_path: Path) -> None:
    source = ROOT / "layercake" / "moduleapi"
    command = [
        "-m",
        "grpc_tools.protoc",
        "-I",
        str(source),
        f"--python_out={tmp_path}",
        "module.proto",
    ]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    assert (tmp_path / "module_pb2.py").read_text() == (source / "module_pb2.py").read_text(), (
        "run `make proto`"
    )


TOO_LONG: set[str] = set()
"""Files that have yet to be split. None is ever added."""


def test_files_stay_small() -> None:
    """Over 500 lines a file is seldom one thing."""
    files = [
        p for d in CODE for p in (ROOT / d).rglob("*.py") if not p.name.startswith("module_pb2")
    ]
    long = {
        str(p.relative_to(ROOT)): n for p in files if (n := len(p.read_text().splitlines())) > 500
    }
    assert set(long) == TOO_LONG, long
