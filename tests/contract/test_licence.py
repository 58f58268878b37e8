"""One licence, one address to write to, and a notice for all that is distributed with Layercake and
is not ours."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from layercake.debian.control import contact as named_contact

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.example\b")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_licence_is_the_one_that_pyproject_names() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert project()["license"] == "BSD-3-Clause"
    assert (
        "BSD 3-Clause License" in text
        and ", the Layercake authors\n" in text
        and "3. Neither the name" in text
    )
    assert all((ROOT / name).is_file() for name in project()["license-files"])


def test_all_places_name_the_same_contact() -> None:
    [contact] = project()["maintainers"]
    assert f"{contact['name']} <{contact['email']}>" == named_contact()
    assert set(ADDRESS.findall((ROOT / "SECURITY.md").read_text())) == {contact["email"]}
    for path in (ROOT / "README.md", ROOT / "NOTICE", *(ROOT / "docs").rglob("*.md")):
        assert (
            set(ADDRESS.findall(path.read_text())) <= {contact["email"]}
            or "maintainers@" not in path.read_text()
        ), path


def test_what_the_dashboard_has_from_npm_has_its_notice() -> None:
    notice = (ROOT / "NOTICE").read_text()
    lock = json.loads((ROOT / "layercake/dashboard/package-lock.json").read_text())["packages"]
    bundled = {place.rpartition("/")[2]: package for place, package in lock.items() if place}
    assert bundled.keys() == {"xterm", "addon-fit"} and {
        one["license"] for one in bundled.values()
    } == {"MIT"}
    assert "xterm.js" in notice and 'addon "fit"' in notice
    licence = (ROOT / "layercake/dashboard/web/xterm/LICENSE").read_text()
    assert all(line.strip() in notice for line in licence.splitlines())
