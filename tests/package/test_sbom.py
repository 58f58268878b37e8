"""`make sbom`: what Layercake is made of, of PyPI and of npm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.images.test_sbom import valid

ROOT = Path(__file__).resolve().parents[2]


def test_it_names_what_the_lock_files_name_and_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "sbom.cdx.json"
    subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::UserWarning",
            "-m",
            "cyclonedx_py",
            "requirements",
            "--pyproject",
            str(ROOT / "pyproject.toml"),
            "--sv",
            "1.5",
            "--of",
            "JSON",
            "--output-reproducible",
            "-o",
            str(path),
            str(ROOT / "requirements.lock"),
        ],
        check=True,
        capture_output=True,
    )
    subprocess.run([sys.executable, "-m", "layercake.debian.sbom", str(path)], check=True, cwd=ROOT)
    document = json.loads(path.read_text())
    valid(document)
    lock = json.loads((ROOT / "layercake/dashboard/package-lock.json").read_text())["packages"]
    version = lock["node_modules/@xterm/xterm"]["version"]
    [xterm] = [
        one
        for one in document["components"]
        if one.get("group") == "@xterm" and one["name"] == "xterm"
    ]
    assert document["metadata"]["component"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert xterm["purl"] == f"pkg:npm/%40xterm/xterm@{version}" and xterm["licenses"] == [
        {"license": {"id": "MIT"}}
    ]
    assert {one["name"] for one in document["components"]} >= {"aiohttp", "xterm", "addon-fit"}
