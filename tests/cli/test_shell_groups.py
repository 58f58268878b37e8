"""The inventory's groups as a source of groups for the real clush and nodeset."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from layercake.cli.shell_groups import CONFIG
from tests.cli.canned_api import CannedApi, node_view

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., Any]
GROUPS = {"n0": ["even", "rack-1"], "n1": ["rack-1"], "n2": ["even"]}


@pytest.fixture
def site(head: CannedApi) -> CannedApi:
    def nodes(request: web.Request, body: Any) -> tuple[int, Any]:
        text = request.query.get("range", "@all")
        chosen = {
            name: groups
            for name, groups in GROUPS.items()
            if text in ("@all", name) or text[1:] in groups
        }
        if not chosen:
            return 400, {"error": f"cannot use node range {text}: there is none", "hint": ""}
        return 200, {"nodes": [node_view(n, groups=groups) for n, groups in chosen.items()]}

    head.answers["GET /v1/nodes"] = nodes
    return head


def test_what_clustershell_asks_is_answered(run: Run, site: CannedApi) -> None:
    assert run("shell-groups", "all").out == "n[0-2]\n"
    assert run("shell-groups", "map", "rack-1").out == "n[0-1]\n"
    assert run("shell-groups", "list").out.split() == ["even", "rack-1"]
    assert run("shell-groups", "reverse", "n0").out.split() == ["even", "rack-1"]
    assert run("shell-groups", "map", "nothing").code == 2
    assert run("shell-groups", "config").out == CONFIG


def test_nodeset_and_clush_use_the_groups(site: CannedApi, socket: Path, tmp_path: Path) -> None:
    directory = tmp_path / "clustershell"
    (directory / "groups.conf.d").mkdir(parents=True)
    (directory / "groups.conf").write_text(
        f"[Main]\ndefault: layercake\nconfdir: {directory}/groups.conf.d\n"
    )
    (directory / "groups.conf.d/layercake.conf").write_text(CONFIG)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "layercake").write_text(
        f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m layercake.cli.main "$@"\n'
    )
    (programs / "layercake").chmod(0o755)
    environment = {
        **os.environ,
        "CLUSTERSHELL_CFGDIR": str(directory),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LAYERCAKE_SOCKET": str(socket),
    }

    def shell(module: str, *words: str) -> str:
        program = [sys.executable, "-m", f"ClusterShell.CLI.{module}", *words]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert shell("Nodeset", "-f", "@even") == "n[0,2]"
    assert shell("Nodeset", "-f", "@layercake:rack-1") == "n[0-1]"
    assert shell("Nodeset", "-f", "-a") == "n[0-2]"
    assert shell("Nodeset", "-l").split() == ["@even", "@rack-1"]
    assert shell("Nodeset", "-r", "n0,n1") == "@rack-1"
    assert shell("Clush", "-R", "exec", "-w", "@even", "-N", "echo", "%h").split() in (
        ["n0", "n2"],
        ["n2", "n0"],
    )
