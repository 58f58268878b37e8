"""The sources of the page: small, of checked types, and nothing in them makes a page of a text."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from layercake.dashboard.pages import HERE, files

TYPES = Path(__file__).parent


def test_files_stay_small() -> None:
    found = {
        path.name: len(path.read_text().splitlines()) for path in HERE.iterdir() if path.is_file()
    }
    assert len(found) > 15 and not [name for name, lines in found.items() if lines > 400]


def test_their_types_are_right() -> None:
    done = subprocess.run(
        [TYPES / "node_modules/.bin/tsc", "-p", str(TYPES)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "word",
    [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        'setAttribute("style"',
    ],
)
def test_no_text_becomes_a_part_of_the_page(word: str) -> None:
    assert not [path.name for path in HERE.glob("*.js") if word in path.read_text()]


def test_the_page_loads_what_there_is_and_from_nowhere_else() -> None:
    version, found = files()
    page = found["index.html"].plain.decode()
    named = set(re.findall(rf'"{version}/([^"]+)"', page))
    ours = {name for name in found if not name.startswith("xterm/")}
    assert named == ours - {"index.html"}, "each file is loaded at once, and none is left out"
    assert not re.findall(r"(?:https?:)?//[a-z]|<style| style=| on[a-z]+=", page)
    for name, file in found.items():
        if name in ours and name.endswith(".js"):
            assert all(
                target in found for target in re.findall(r'from "\./([\w.]+)"', file.plain.decode())
            ), name


def test_xterm_is_what_the_lock_file_names_and_is_in_no_commit() -> None:
    lock = json.loads((HERE.parent / "package-lock.json").read_text())["packages"]
    for package, name in (("xterm", "xterm.js"), ("addon-fit", "fit.js")):
        there = HERE.parent / "node_modules/@xterm" / package
        assert (
            json.loads((there / "package.json").read_text())["version"]
            == lock[f"node_modules/@xterm/{package}"]["version"]
        )
        text = (HERE / "xterm" / name).read_text()
        assert (
            text.rstrip() in next(there.glob("lib/*.mjs")).read_text()
            and "sourceMappingURL" not in text
        )
    root = HERE.parents[2]
    tracked = subprocess.run(
        ["git", "-C", str(root), "ls-files", "layercake/dashboard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "xterm/" not in tracked and "node_modules" not in tracked
