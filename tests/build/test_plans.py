"""What apt would install is asked once for each state of its lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minos.build import kernel
from minos.build.debian import debs

SAID = "Inst mdadm (4.2-5 Debian:12.0 [amd64])\nInst libc6:amd64 (2:2.36-9 Debian:12.0 [amd64])\n"


def test_a_plan_is_kept_until_the_lists_are_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def run(*command: str) -> str:
        asked.append(command)
        return SAID

    monkeypatch.setattr(kernel, "run", run)
    stamp = tmp_path / "updated"
    plan = ["mdadm_4.2-5_amd64.deb", "libc6_2%3a2.36-9_amd64.deb"]
    assert debs.install_set(["mdadm"], tmp_path, ()) == plan
    assert debs.install_set(["mdadm"], tmp_path, ()) == plan and len(asked) == 2, (
        "there are no lists: nothing is kept"
    )
    stamp.touch()
    for _ in range(3):
        assert debs.install_set(["mdadm"], tmp_path, ()) == plan
    assert len(asked) == 3
    assert debs.install_set(["lvm2"], tmp_path, ()) == plan and len(asked) == 4
    later = stamp.stat().st_mtime_ns + 10**12
    os.utime(stamp, ns=(later, later))
    assert debs.install_set(["mdadm"], tmp_path, ()) == plan and len(asked) == 5
    assert len(list(tmp_path.glob("plan-*"))) == 1, "what was planned by older lists goes"
