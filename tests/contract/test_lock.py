"""What is installed is pinned by hash: the lock files hold all that pyproject.toml asks for, and
name no registry."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import installers
import preparations
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from steps import Shell

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"([a-z0-9.-]+)(\[[a-z, -]+\])?==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def locked(name: str) -> dict[str, str]:
    """{package: version} of a lock file; each of its lines is a version and hashes, and nothing
    else."""
    found: dict[str, str] = {}
    for line in (ROOT / name).read_text().replace("\\\n    ", "").splitlines():
        match = LINE.fullmatch(line)
        assert match, f"{name}: {line[:100]!r} is not a version with its hashes: `make lock`"
        found[canonicalize_name(match[1])] = match[3]
    return found


def wanted(*extras: str) -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in (
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ):
        requirement = Requirement(text)
        if requirement.name != "layercake":
            yield requirement


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("requirements.lock", ()),
        ("requirements-demo.lock", ("demo",)),
        ("requirements-dev.lock", ("demo", "docs", "dev")),
    ],
)
def test_the_lock_has_all_that_is_asked_for(name: str, extras: tuple[str, ...]) -> None:
    found = locked(name)
    assert len(found) > 20 and "setuptools" in found, "it builds the package itself"
    for requirement in wanted(*extras):
        version = found.get(canonicalize_name(requirement.name))
        assert version and version in requirement.specifier, (
            f"{requirement} is {version} in {name}: `make lock`"
        )


def test_what_ships_is_what_was_tested() -> None:
    tested = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-demo.lock"):
        assert {package: tested.get(package) for package in locked(name)} == locked(name)


class Recording(Shell):
    """Runs nothing, and keeps what it was to run."""

    def __init__(self) -> None:
        super().__init__("nothing", Path("/dev/null"), threading.Event())
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, *command: str, **options: object) -> str:
        self.commands.append(command)
        return ""


def test_make_installs_nothing_without_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "VENV", tmp_path)
    monkeypatch.setattr(installers, "VENV_LIBVIRT", tmp_path)
    shell = Recording()
    for made in (
        *(installers.libraries(target.lock) for target in preparations.TARGETS.values()),
        installers.libvirt_libraries(),
    ):
        made.run(shell)
    installs = [command for command in shell.commands if {"pip", "install"} <= {*command}]
    assert len(installs) > 10
    for command in installs:
        assert "--require-hashes" in command or {"--no-deps", "--no-build-isolation", "-e"} <= {
            *command
        }, command
    assert {"virtualbmc", "sushy-tools"} <= locked("vm-testbed/libvirt.lock").keys()
    assert "sushy-tools" in locked("requirements-demo.lock")
