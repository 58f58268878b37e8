"""The package's build: always the same bytes; manual pages and completion are what the program says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from layercake.cli.main import COMMANDS
from layercake.debian import build as builder
from layercake.debian.build import FROM_DEBIAN, build, depends, without
from layercake.debian.manual import completions, manual
from layercake.kraken.errors import OperationFailed
from tests.package.conftest import QUICKLY


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert build(tmp_path, QUICKLY).read_bytes() == package.read_bytes()


def test_the_terminal_of_the_dashboard_is_in_it(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = subprocess.run(["dpkg-deb", "-c", str(package)], capture_output=True, text=True, check=True).stdout
    for name in ("xterm.js", "fit.js", "xterm.css", "LICENSE"):
        assert f"/layercake/dashboard/web/xterm/{name}" in listed
    assert "node_modules" not in listed
    monkeypatch.setattr(builder, "XTERM", builder.ROOT / "nothere.js")
    with pytest.raises(OperationFailed, match="nothere"):
        build(tmp_path, QUICKLY)


def test_there_is_a_page_for_each_command_and_it_is_well_formed(tmp_path: Path) -> None:
    pages = manual("0.0", 0)
    assert pages.keys() == {"layercake.1", *(f"layercake-{name}.1" for name in COMMANDS)}
    for name, text in pages.items():
        path = tmp_path / name
        path.write_text(text)
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-l", str(path)], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "200"}, check=True)
        assert not done.stderr, (name, done.stderr)
        shown = re.sub(".\b", "", done.stdout)  # printed twice is bold
        assert "NAME" in shown and "1970-01-01" in shown
        if name == "layercake-node.1":
            assert "layercake node list" in shown and "--json" in shown


def test_the_shells_take_their_scripts(tmp_path: Path) -> None:
    found = completions()
    assert len(found) == 3 and all("_LAYERCAKE_COMPLETE" in text for text in found.values())
    (tmp_path / "bash").write_text(next(text for path, text in found.items() if "bash" in path))
    subprocess.run(["bash", "-n", str(tmp_path / "bash")], check=True)


def test_what_debian_has_is_left_out_and_what_the_lock_has_not_is_said() -> None:
    rich = "rich==15 \\\n    --hash=sha256:01\n    --hash=sha256:02\n"
    lock = f"aiohttp==3 \\\n    --hash=sha256:00\n{rich}yarl==1 ; python_version < '4' \\\n    --hash=1\n"
    assert without(lock, {"rich": "python3-rich"}) == lock.replace(rich, "")
    with pytest.raises(OperationFailed, match="cannot leave out nothere"):
        without(lock, {"nothere": "python3-nothere"})
    assert without((Path(__file__).parents[2] / "requirements.lock").read_text(), FROM_DEBIAN)


def test_packages_are_listed_in_two_parts() -> None:
    assert depends("# needed\na\nb\n# Recommended: for more\nc\n") == (["a", "b"], ["c"])
