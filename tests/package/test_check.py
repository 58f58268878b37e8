"""What `make deb CHECK=1` says of the tools that it runs, and how it makes an older version of the
package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import packagecheck
import pytest

from layercake.debian.build import QUICK
from layercake.kraken.errors import OperationFailed


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(packagecheck, "ROOT", tmp_path)
    monkeypatch.setattr(packagecheck, "LOGS", tmp_path)
    monkeypatch.setattr(packagecheck, "EVERY_S", 0.05)
    return tmp_path


def test_a_tool_that_is_content_passes_and_says_meanwhile_how_far_it_is(
    capsys: pytest.CaptureFixture[str], logs: Path
) -> None:
    done = logs / "said"
    packagecheck.watched(
        "tool",
        [
            "sh",
            "-c",
            f"echo unpacking; while [ ! -e {done} ]; do sleep 0.05; touch {done}; sleep 1; done",
        ],
    )
    said = capsys.readouterr().out
    assert (
        "tool: begins, log in tool.log" in said
        and " s, unpacking\n" in said
        and "tool: passed after " in said
    )


def test_a_tool_that_is_not_is_told_with_what_it_said_last() -> None:
    with pytest.raises(
        OperationFailed, match="cannot accept the package: tool ended with 3: E: odd"
    ):
        packagecheck.watched("tool", ["sh", "-c", "echo 'E: odd'; exit 3"])


def test_a_tool_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packagecheck, "LIMIT_S", 0.0)
    with pytest.raises(OperationFailed, match="takes longer"):
        packagecheck.watched("tool", ["sleep", "1000"])


def test_an_older_version_is_older(tmp_path: Path) -> None:
    tree = tmp_path / "tree/DEBIAN"
    tree.mkdir(parents=True)
    (tree / "control").write_text(
        "Package: layercake\nVersion: 1.0\nArchitecture: amd64\n"
        "Maintainer: A <a@a.example>\nDescription: x\n"
    )
    package = tmp_path / "new.deb"
    subprocess.run(
        ["dpkg-deb", *QUICK, "--build", str(tree.parent), str(package)],
        check=True,
        capture_output=True,
    )
    version = subprocess.run(
        ["dpkg-deb", "-f", str(packagecheck.older(package, tmp_path)), "Version"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    subprocess.run(["dpkg", "--compare-versions", version, "lt", "1.0"], check=True)
