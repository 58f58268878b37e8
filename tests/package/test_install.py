"""The README's way on clean machines with Debian 12 and 13, systemd and all: install, init, serve,
upgrade, remove, purge.

Each test goes on where the one before it left the machine.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cleanroot import ADDRESS, INTERFACE, KERNELS, CleanRoot
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from patience import patience
from sampleimages import plain_image

from layercake.debian.control import depends
from layercake.debian.environment import PYTHONS
from tests.contract.test_rooms import ROOT

pytestmark = pytest.mark.root
LIMIT_S = 120.0
DATA, SETTINGS = "/var/lib/layercake", "/etc/layercake/config.yaml"
EXPOSED = 3.5
"""Of systemd's own measure from 0 to 10; a unit that says nothing has 9.6."""
INVENTORY = "nodes: {'n[0-1]': {mac: '52:54:00:00:00:10+', ip: 10.99.7.10+}}\n"
HANGS = "[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\nRestartSec=1\n"


def until(what: str, done: Callable[[], Any]) -> Any:
    """Waits for what must be seen; returns it."""
    end = time.monotonic() + patience(LIMIT_S)
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {LIMIT_S:.0f} s")


def running(machine: CleanRoot) -> dict[str, Any] | None:
    """What the head says of itself, once all of its modules run."""
    done = machine.run("layercake", "status", "--json", check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    services = found.get("services", [])
    return found if services and all(s["state"] == "running" for s in services) else None


def processes(machine: CleanRoot) -> str:
    """The command lines of all that runs."""
    return machine.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


def main_pid(machine: CleanRoot) -> str:
    return machine.limits("layercake", ["MainPID"])["MainPID"]


def kept(machine: CleanRoot) -> dict[str, str]:
    """Digests of what nobody could make anew."""
    data = machine.root / DATA[1:]
    files = [
        *(data / "pki").iterdir(),
        *(data / "images").glob("*.squashfs"),
        *data.glob("boot/*/*"),
        data / "tokens.json",
        machine.root / SETTINGS[1:],
    ]
    return {
        str(f.relative_to(machine.root)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in files
        if f.is_file()
    }


def nodes(machine: CleanRoot) -> list[str]:
    return [
        n["name"]
        for n in json.loads(machine.run("layercake", "node", "list", "--json").stdout)["nodes"]
    ]


def test_it_is_installed_with_what_it_needs(machine: CleanRoot, package: Path) -> None:
    said = machine.apt("install", machine.put(package))
    assert "now run `layercake init`" in said
    assert machine.run("layercake", "--version").stdout.startswith("layercake, version ")
    _, recommended = depends((ROOT / "packages.txt").read_text())
    planned = machine.run("apt-get", "-s", "install", *recommended).stdout
    assert all(f"\nInst {name} " in planned for name in recommended), (
        "what is recommended can be had"
    )
    assert not machine.run("dpkg", "--verify", "layercake").stdout


def test_every_library_has_what_it_asks_for(machine: CleanRoot) -> None:
    """The package's own, and Debian's among them."""
    code = (
        "import importlib.metadata as m, json, sys; print(json.dumps(['%d.%d' % "
        "sys.version_info[:2], "
        "[[d.metadata['Name'], d.version, d.requires or []] for d in m.distributions()]]))"
    )
    number, found = json.loads(
        machine.run("/usr/lib/layercake/bin/python3", "-I", "-c", code).stdout
    )
    assert number in PYTHONS
    versions: dict[str, str] = {}
    for name, version, _ in found:
        versions.setdefault(canonicalize_name(name), version)
    own = {canonicalize_name(name): requires for name, _, requires in reversed(found)}
    waiting, seen, wrong = [canonicalize_name("layercake")], set[str](), []
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for text in own[name]:
            needs = Requirement(text)
            wanted = canonicalize_name(needs.name)
            here = {"python_version": number, "python_full_version": f"{number}.0", "extra": ""}
            if needs.marker and not needs.marker.evaluate(here):
                continue
            if wanted not in versions or not needs.specifier.contains(
                versions[wanted], prereleases=True
            ):
                wrong.append(f"{name} needs {text}, there is {versions.get(wanted)}")
            elif wanted not in seen:
                waiting.append(wanted)
    assert not wrong and len(seen) > 25


def test_without_settings_it_does_not_start_and_says_why(machine: CleanRoot) -> None:
    assert "ssertion" in machine.run("systemctl", "start", "layercake", check=False).stderr
    assert machine.limits("layercake", ["ActiveState", "NRestarts"]) == {
        "ActiveState": "inactive",
        "NRestarts": "0",
    }


def test_init_and_start_are_enough(machine: CleanRoot) -> None:
    said = machine.run("layercake", "init", "--profile", "virtual", "--cache", KERNELS).stdout
    assert f"interface: {INTERFACE}" in said and f"address: {ADDRESS}" in said
    machine.run("systemctl", "start", "layercake")
    status = until("all modules run", lambda: running(machine))
    assert status["nodes"]["total"] == 0
    assert (machine.root / SETTINGS[1:]).stat().st_mode & 0o777 == 0o600
    assert (machine.root / DATA[1:] / "config.yaml").readlink() == Path(SETTINGS)
    boot = json.loads(machine.run("layercake", "boot", "list", "--json").stdout)["sets"]
    assert [s["default"] for s in boot] == [True]


def test_the_unit_is_sound(machine: CleanRoot) -> None:
    unit = machine.limits(
        "layercake",
        ["Type", "WatchdogUSec", "LimitNOFILE", "UnitFileState", "StatusText", "NRestarts"],
    )
    assert (
        unit["Type"] == "notify"
        and unit["WatchdogUSec"] == "1min"
        and int(unit["LimitNOFILE"]) >= 16384
    )
    assert (
        unit["UnitFileState"] == "enabled"
        and ADDRESS in unit["StatusText"]
        and unit["NRestarts"] == "0"
    )
    complaints = machine.run("systemd-analyze", "--man=no", "verify", "layercake.service")
    assert not complaints.stdout + complaints.stderr
    last = (
        machine.run("systemd-analyze", "security", "--no-pager", "layercake.service")
        .stdout.strip()
        .splitlines()[-1]
    )
    assert float(last.split(":")[1].split()[0]) <= EXPOSED, last
    # It sees the machine, and writes nowhere else.
    pid = main_pid(machine)
    for place, writable in (
        (DATA, True),
        ("/run/layercake", True),
        ("/etc/layercake", False),
        ("/usr", False),
        ("/root", False),
    ):
        done = machine.run(
            "nsenter",
            "-m",
            "-t",
            pid,
            "--",
            "sh",
            "-c",
            f": > {place}/probe && rm {place}/probe",
            check=False,
        )
        assert (done.returncode == 0) is writable, (place, done.stderr)


def test_it_is_used_as_the_readme_says(machine: CleanRoot) -> None:
    machine.run("cp", machine.put(plain_image("plain-1")), "/tmp")
    for directory in ("root", "tmp"):
        image = f"/{directory}/{plain_image('plain-1').name}"
        machine.run(
            "layercake",
            "image",
            "add",
            f"from-{directory}",
            image,
            "--no-systemd",
            "--command",
            "/init",
        )
    machine.run("layercake", "apply", "-", "--yes", "--no-wait", text=INVENTORY)
    assert nodes(machine) == ["n0", "n1"]


def test_its_documentation_is_on_it(machine: CleanRoot) -> None:
    """In the terminal, in the files that systemd names, and in a browser of anybody."""
    assert (
        machine.run("layercake", "docs", "consoles").stdout
        == (ROOT / "docs/howto/consoles.md").read_text()
    )
    named = machine.limits("layercake", ["Documentation"])["Documentation"].rpartition("file://")[2]
    documents = machine.root / "usr/share/doc/layercake"
    assert all(
        path.is_file()
        for path in (
            machine.root / named[1:],
            documents / "html/howto/consoles.html",
            documents / "docs/howto/consoles.md",
        )
    )
    code = (
        "import ssl, urllib.request as u; "
        "print(u.urlopen('https://%s:8443/docs/howto/consoles.html', "
        "context=ssl._create_unverified_context()).read().decode())"
    )
    assert "<title>" in machine.run("python3", "-c", code % ADDRESS).stdout


def test_init_can_be_run_again(machine: CleanRoot) -> None:
    before = kept(machine)
    assert "stays as it is" in machine.run("layercake", "init", "--no-boot").stdout
    done = machine.run("layercake", "init", "--no-boot", "--gateway", "10.99.7.254", check=False)
    assert done.returncode == 2 and SETTINGS in done.stderr
    assert kept(machine) == before


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", {"COMP_WORDS": "layercake node l", "COMP_CWORD": "2"}),
        ("zsh", {"COMP_WORDS": "layercake node l", "COMP_CWORD": "2"}),
        ("fish", {"COMP_WORDS": "layercake node l", "COMP_CWORD": "l"}),
    ],
)
def test_the_shell_completes(machine: CleanRoot, shell: str, words: dict[str, str]) -> None:
    said = machine.run(
        "env",
        f"_LAYERCAKE_COMPLETE={shell}_complete",
        *(f"{k}={v}" for k, v in words.items()),
        "layercake",
    ).stdout
    assert "list" in said and "logs" in said


def test_bash_completes_by_the_file_that_is_installed(machine: CleanRoot) -> None:
    script = (
        ". /usr/share/bash-completion/completions/layercake; COMP_WORDS=(layercake au); "
        "COMP_CWORD=1; "
        "_layercake_completion layercake; echo ${COMPREPLY[@]}"
    )
    assert machine.run("bash", "-c", script).stdout.split() == ["authority", "audit"]


def test_a_head_that_hangs_is_started_anew(machine: CleanRoot) -> None:
    override = machine.root / "etc/systemd/system/layercake.service.d/hangs.conf"
    override.parent.mkdir()
    override.write_text(HANGS)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "layercake")
    hung = main_pid(machine)
    machine.run("sh", "-c", f"kill -STOP {hung}")
    until("another head runs", lambda: main_pid(machine) not in ("0", hung) and running(machine))
    assert nodes(machine) == ["n0", "n1"]
    journal = machine.run("journalctl", "-u", "layercake", "--no-pager").stdout
    assert "Watchdog timeout" in journal
    override.unlink()
    machine.run("systemctl", "daemon-reload")


def leads(machine: CleanRoot) -> bool:
    """Whether it is one of several heads, and well."""
    done = machine.run("layercake", "heads", "show", "--json", check=False)
    return done.returncode == 0 and json.loads(done.stdout)["leader"] == "head1"


def store_pid(machine: CleanRoot) -> str:
    return machine.limits("layercake-store", ["MainPID"])["MainPID"]


def test_the_first_of_several_heads_has_its_store_from_systemd(machine: CleanRoot) -> None:
    """A witness has the same unit, and nothing else."""
    states = ["ActiveState", "UnitFileState"]
    unit = machine.limits("layercake-store", states)
    assert unit == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    refused = machine.run("layercake", "heads", "begin", "--yes", check=False)
    assert "etcd is not installed" in refused.stderr
    program = shutil.which("etcd")
    assert program is not None
    machine.run("install", "-m", "755", machine.put(Path(program)), "/usr/bin/etcd")
    machine.run("layercake", "heads", "begin", "--yes")
    machine.run("systemctl", "restart", "layercake")
    until("it leads", lambda: leads(machine) and running(machine))
    unit = machine.limits("layercake-store", states)
    assert unit == {"ActiveState": "active", "UnitFileState": "enabled"}
    assert nodes(machine) == ["n0", "n1"]
    complaints = machine.run("systemd-analyze", "--man=no", "verify", "layercake-store.service")
    assert not complaints.stdout + complaints.stderr
    measured = machine.run("systemd-analyze", "security", "--no-pager", "layercake-store.service")
    last = measured.stdout.strip().splitlines()[-1]
    assert float(last.split(":")[1].split()[0]) <= EXPOSED, last


def test_a_store_that_ends_is_started_again(machine: CleanRoot) -> None:
    ended = store_pid(machine)
    head = main_pid(machine)
    machine.run("sh", "-c", f"kill -KILL {ended}")
    until("another one runs", lambda: store_pid(machine) not in ("0", ended) and leads(machine))
    changed = ("layercake", "node", "set", "n0", "kernel_args=quiet")
    until("it takes changes", lambda: not machine.run(*changed, check=False).returncode)
    assert main_pid(machine) == head


def test_an_upgrade_keeps_all_and_restarts_the_head(machine: CleanRoot, newer: Path) -> None:
    before, pid, store = kept(machine), main_pid(machine), store_pid(machine)
    machine.apt("install", machine.put(newer))
    until("the new head runs", lambda: main_pid(machine) not in ("0", pid) and running(machine))
    assert kept(machine) == before and nodes(machine) == ["n0", "n1"]
    assert store_pid(machine) == store and leads(machine), "the others have their quorum meanwhile"


def test_the_last_of_several_heads_is_alone_again(machine: CleanRoot) -> None:
    machine.run("systemctl", "stop", "layercake")
    machine.run("layercake", "heads", "end", "--yes")
    unit = machine.limits("layercake-store", ["ActiveState", "UnitFileState"])
    assert unit == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    machine.run("systemctl", "start", "layercake")
    until("it serves", lambda: running(machine))
    assert nodes(machine) == ["n0", "n1"]


def test_a_head_that_was_stopped_is_not_started_by_an_upgrade(machine: CleanRoot) -> None:
    machine.run("systemctl", "stop", "layercake")
    machine.run(
        "/var/lib/dpkg/info/layercake.postinst", "configure", "0.1.0"
    )  # what dpkg runs last
    assert machine.limits("layercake", ["ActiveState"])["ActiveState"] == "inactive"


def test_removal_loses_nothing(machine: CleanRoot, newer: Path) -> None:
    machine.run("systemctl", "start", "layercake")
    assert "/usr/bin/layercake serve" in processes(machine)
    before = kept(machine)
    machine.apt("remove", "layercake")
    assert "layercake" not in processes(machine), "it has stopped"
    assert not list((machine.root / "usr/lib/layercake").rglob("*")), (
        "nothing of the program is left"
    )
    assert kept(machine) == before
    machine.apt("install", machine.put(newer))
    until("it serves again, by itself", lambda: running(machine))
    assert kept(machine) == before and nodes(machine) == ["n0", "n1"]


def test_a_purge_says_what_it_keeps(machine: CleanRoot) -> None:
    before = kept(machine)
    said = machine.apt("purge", "layercake")
    assert f"rm -r {DATA}" in said and "rm -r /etc/layercake" in said
    assert kept(machine) == before
