"""`layercake new`: what it writes works at once, in a Python environment of its own, under a real
head."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from layercake.cli.main import main
from layercake.modules.declared import SiteModule
from tests.modules.conftest import Open

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 40


def run(command: Sequence[str], cwd: Path) -> str:
    """What a program said. Raises AssertionError with that if it failed."""
    outside = {
        name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"
    }  # that is for this run
    done = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
        env=outside,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(directory: Path) -> str:
    """A fresh virtual environment in which Layercake, its libraries and pip are found where they
    are; its Python."""
    venv.create(directory, symlinks=True, with_pip=False, system_site_packages=True)
    python = directory / "bin/python"
    own = Path(
        run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], directory
        ).strip()
    )
    (own / "layercake.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return str(python)


@pytest.mark.root
def test_a_generated_module_is_installed_and_mutates(
    tmp_path: Path, site_with: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert main(["new", "module", "cooling", "--directory", str(made)]) == 0
    said = capsys.readouterr().out
    assert f"pip install -e {made}" in said
    assert "  modules:\n    cooling: {}\n" in said
    written = sorted(path.name for path in made.iterdir())
    assert written == ["cooling.py", "pyproject.toml", "test_cooling.py"]
    assert sum(len((made / name).read_text().splitlines()) for name in written[:2]) <= MOST_LINES
    assert main(["new", "variable", str(made), "fans", "FULL", "SLOW"]) == 0

    python = environment(tmp_path / "venv")
    run(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-build-isolation",
            "--no-deps",
            "--no-warn-conflicts",
            "--disable-pip-version-check",
            ".",
        ],
        made,
    )
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_cooling.py"], made)
    with site_with({"cooling": SiteModule()}, python=python) as site:
        state = site.states()["h0"]["state"]
        assert (state["cooling"], state["fans"]) == ("GOOD", "FULL")
        done = {e["data"]["mutation"] for e in site.history("h0", "mutation.done")}
        assert {"cooling-discover", "fans-discover"} <= done
        (status,) = [s for s in site.api("GET", "/v1/status")["services"] if s["name"] == "cooling"]
        assert (status["state"], status["restarts"]) == ("running", 0)


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["new", "module", "cooling", "--directory", str(tmp_path)]
    (tmp_path / "cooling.py").write_text("mine\n")
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["cooling.py"]
    assert (tmp_path / "cooling.py").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Cooling", "lower case"),
        ("a-b", "lower case"),
        ("../up", "lower case"),
        ("class", "lower case"),
        ("x" * 25, "24 characters"),
        ("json", "Python has a module of that name"),
        ("imageapi", "Python has a module of that name"),
        ("module", "has MODULE already"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    assert main(["new", "module", name, "--directory", str(tmp_path / "made")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fans", "full"], "upper case"),
        (["fans", "FULL", "FULL"], "distinct"),
        (["fans", "UNKNOWN"], "upper case"),
        (["Fans", "FULL"], "lower case"),
        (["cooling", "FULL"], "has COOLING, cooling_discover already"),
        (["wanted", "FULL"], "has WANTED already"),
    ],
)
def test_a_variable_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["new", "module", "cooling", "--directory", str(tmp_path)]) == 0
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert main(["new", "variable", str(tmp_path), *words]) == 2
    assert why in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_module_that_was_written_by_hand_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "variable", str(tmp_path), "fans", "FULL"]) == 2
    assert "has no module" in capsys.readouterr().err
    assert main(["new", "module", "cooling", "--directory", str(tmp_path)]) == 0
    file = tmp_path / "cooling.py"
    file.write_text(file.read_text().replace("WANTED", "GOALS"))
    before = file.read_text()
    assert main(["new", "variable", str(tmp_path), "fans", "FULL"]) == 2
    assert "add it by hand" in capsys.readouterr().err
    assert file.read_text() == before
