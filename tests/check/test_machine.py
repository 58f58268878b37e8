"""What is told of the head's machine: its clock, certificates, disk and limits; and how checks are
carried out."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layercake.agents import pki
from layercake.check.finding import Check, Finding, Severity
from layercake.check.machine import Machine
from layercake.check.resources import certificates, disk, limits, time
from layercake.check.site import Site
from layercake.check.table import CHECKS, run_checks, select_checks
from layercake.kraken.errors import InputError, OperationFailed
from tests.check.made import NODES, made, worst

DAY = 86_400.0


# -- the table


def test_every_check_says_what_it_looks_at_and_has_a_name_of_its_own() -> None:
    assert len({c.name for c in CHECKS}) == len(CHECKS)
    assert all(c.doc.endswith(".") for c in CHECKS)


def test_one_check_that_fails_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(site: Site) -> list[Finding]:
        raise OperationFailed("cannot look: no", hint="do so")

    def missing(site: Site) -> list[Finding]:
        raise PermissionError(1, "Operation not permitted")

    def bug(site: Site) -> list[Finding]:
        raise KeyError("secret-word")

    some = [Check("a", "", refused), Check("b", "", missing), Check("c", "", bug), disk]
    results = run_checks(made(tmp_path), some)
    assert [r.name for r in results[:3]] == ["a", "b", "c"]
    assert results[0].to_record() == {
        "name": "a",
        "severity": "error",
        "text": "cannot look: no",
        "hint": "do so",
        "nodes": "",
    }
    assert "as root" in results[1].finding.hint
    assert "secret-word" not in results[2].finding.text
    assert results[3].name == "disk"
    assert "secret-word" in caplog.text  # on standard error, for who mends it


def test_a_name_that_is_no_checks() -> None:
    assert select_checks(()) == CHECKS
    with pytest.raises(InputError, match="no such check") as error:
        select_checks(("dchp",))
    assert "dhcp" in error.value.hint


# -- the machine


@pytest.mark.parametrize(
    ("right", "ahead", "severity"),
    [
        (True, 0.0, Severity.OK),
        (True, 30.0, Severity.OK),
        (True, -3600.0, Severity.WARNING),
        (False, 0.0, Severity.WARNING),
    ],
)
def test_time(tmp_path: Path, right: bool, ahead: float, severity: Severity) -> None:
    clock = tmp_path / "class/rtc/rtc0/since_epoch"
    clock.parent.mkdir(parents=True)
    clock.write_text(f"{1_800_000_000 + ahead:.0f}\n")
    machine = Machine(sys=tmp_path, wall=lambda: 1_800_000_000.0, synchronised=lambda: right)
    found = time.look(made(tmp_path, machine=machine))
    assert worst(found) is severity
    virtual = replace(
        machine, sys=tmp_path / "none", synchronised=lambda: True
    )  # without such a clock
    assert worst(time.look(made(tmp_path, machine=virtual))) is Severity.OK


@pytest.mark.parametrize(
    ("days", "running", "severity"),
    [
        (0, True, Severity.OK),
        (45, True, Severity.WARNING),
        (57, True, Severity.ERROR),
        (70, True, Severity.ERROR),
        (70, False, Severity.OK),
        (3400, False, Severity.WARNING),
        (3640, False, Severity.ERROR),
    ],
)
def test_certificates(tmp_path: Path, days: int, running: bool, severity: Severity) -> None:
    pki.create(tmp_path / "pki", "10.99.0.1")
    (age,) = [a for a in pki.Authority(tmp_path / "pki").ages() if a.what == "head"]
    now = age.until - 60 * DAY + days * DAY
    api: Any = object() if running else None
    assert (
        worst(certificates.look(made(tmp_path, api=api, machine=Machine(wall=lambda: now))))
        is severity
    )


def test_no_certificates_at_all(tmp_path: Path) -> None:
    assert [f.severity for f in certificates.look(made(tmp_path))] == [Severity.ERROR] * 2


def _limits(directory: Path, **numbers: int) -> Machine:
    usual = {
        "gc_thresh3": 4096,
        "gc_thresh2": 2048,
        "max_user_instances": 128,
        "max_user_watches": 65536,
    }
    for name, value in {**usual, **numbers}.items():
        folder = directory / (
            "sys/net/ipv4/neigh/default" if name.startswith("gc") else "sys/fs/inotify"
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n")
    return Machine(proc=directory)


@pytest.mark.root
@pytest.mark.parametrize(
    ("numbers", "nodes", "severity"),
    [
        ({}, 500, Severity.OK),
        ({"gc_thresh3": 1024}, 500, Severity.ERROR),
        ({"gc_thresh2": 512}, 500, Severity.WARNING),
        ({"max_user_instances": 8}, 3, Severity.WARNING),
        ({"gc_thresh3": 1024, "gc_thresh2": 512}, 100, Severity.OK),
    ],
)
def test_limits(tmp_path: Path, numbers: dict[str, int], nodes: int, severity: Severity) -> None:
    site = made(tmp_path, machine=_limits(tmp_path, **numbers), nodes=NODES[:1] * nodes)
    assert worst(limits.look(site)) is severity


def test_the_head_that_runs_may_open_too_few_files(tmp_path: Path) -> None:
    machine = _limits(tmp_path)
    (tmp_path / "77").mkdir()
    (tmp_path / "77/limits").write_text(
        "Limit  Soft Limit  Hard Limit  Units\nMax open files     1024         65536     files\n"
    )
    site = made(
        tmp_path,
        machine=machine,
        status={"services": [{"name": "pxe", "pid": 77}, {"name": "other", "pid": None}]},
    )
    (found,) = [f for f in limits.look(site) if f.severity is not Severity.OK]
    assert "pxe may open 1024 files" in found.text


@pytest.mark.root
@pytest.mark.parametrize(
    ("size", "severity"), [("20g", Severity.OK), ("4g", Severity.WARNING), ("64m", Severity.ERROR)]
)
def test_disk(tmp_path: Path, size: str, severity: Severity) -> None:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(tmp_path)], check=True
    )
    try:
        assert worst([f for f in disk.look(made(tmp_path)) if str(tmp_path) in f.text]) is severity
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        assert "read-only" in disk.look(made(tmp_path))[0].text
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
