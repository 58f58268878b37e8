"""What prepares the commands of this project: order, tries, progress, requirements, and what a
killed run has left."""

from __future__ import annotations

import io
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import installers
import leftovers
import preparations
import prepare
import pytest
import requirements
import steps
from patience import patience
from preparations import TARGETS, target
from progress import QUIET_S, Progress
from steps import Runner, Shell, Step, StepError
from vrack import netns
from vrack.owner import OWNER, claim, owned

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def progress() -> Progress:
    return Progress(io.StringIO(), Clock())


@pytest.fixture
def runner(progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(steps, "WAIT_S", 0.0)
    return Runner(progress, tmp_path / "log")


def test_silence_is_broken_and_noise_is_not() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, clock)
    progress.doing("n0 boots", 0.5)
    clock.now = QUIET_S - 0.1
    progress.tick()
    assert out.getvalue() == ""
    clock.now = QUIET_S
    progress.tick()
    assert out.getvalue().split() == ["7.0", "s", "50%", "n0", "boots"]
    clock.now += QUIET_S - 0.1
    progress.tick()
    assert out.getvalue().count("\n") == 1


def test_on_a_terminal_there_is_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    progress = Progress(out, Clock())
    progress.doing("n0 boots", 0.25)
    progress.tick()
    progress.line("a line")
    assert out.getvalue().split("\r\033[K")[1:] == [
        "[######..................]  25%     0 s  n0 boots",
        "a line\n",
    ]


def test_steps_wait_for_each_other_and_what_is_done_is_left_out(runner: Runner) -> None:
    done: list[str] = []

    def step(name: str, *after: str, needed: bool = True) -> Step:
        return Step(name, lambda shell: done.append(name), after=after, needed=lambda: needed)

    runner.run(
        [
            step("third", "second"),
            step("second", "first"),
            step("first", "zeroth"),
            step("zeroth", needed=False),
        ]
    )
    assert done == ["first", "second", "third"] and runner.progress.done == 1.0


def test_what_fails_is_tried_again_and_then_said(runner: Runner, tmp_path: Path) -> None:
    def flaky(shell: Shell) -> None:
        shell("sh", "-c", f"echo once more; [ {shell.attempt} -gt 2 ]")

    runner.run([Step("flaky", flaky)])
    assert (tmp_path / "log").read_text().count("\nonce more") == 3
    with pytest.raises(
        StepError, match=r"cannot prepare bad: sh ended with status 3\n    no such mirror"
    ):
        runner.run(
            [Step("bad", lambda shell: void(shell("sh", "-c", "echo no such mirror; exit 3")))]
        )
    with pytest.raises(StepError, match="cannot prepare worse: nothere is not installed"):
        Runner(runner.progress, tmp_path / "log").run(
            [Step("worse", lambda shell: void(shell("nothere")))]
        )


def void(_: object) -> None:
    """A step gives nothing back."""


def test_a_step_in_the_background_is_not_waited_for_and_ends_when_it_is_told_to(
    runner: Runner,
) -> None:
    started = threading.Event()

    def long(shell: Shell) -> None:
        started.set()
        shell("sleep", "600")

    pool = runner.run(
        [Step("long", long, background=True), Step("short", lambda shell: void(started.wait(60)))]
    )
    runner.end()
    pool.shutdown()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Unpacking libc6 (2.36-9) ...", "Unpacking libc6 (2.36-9)"),
        ("W: Target Packages is configured multiple times", ""),
        ("WARNING: Location is ignored", ""),
        ("plain", "plain"),
    ],
)
def test_what_tools_say_is_put_into_words(line: str, shown: str) -> None:
    assert steps.shown(line) == shown


def test_the_demo_needs_little_and_its_variants_more() -> None:
    demo, ceph = (target(words) for words in ("demo", "demo+rbd+pcap"))
    names = {step.name for step in demo.steps()}
    assert names == {installers.PACKAGES, installers.LIBRARIES, installers.BASE, installers.KERNEL}
    wanted = [
        name for file in demo.lists for name in preparations.listed(ROOT / file, recommended=False)
    ]
    assert "qemu-system-x86" in wanted and not {"chromium", "ceph-mon", "slurmctld", "buildah"} & {
        *wanted
    }
    assert {*ceph.lists} - {*demo.lists} == {
        "vm-testbed/packages-ceph.txt",
        "vm-testbed/packages-pcap.txt",
    }
    with pytest.raises(KeyError):
        target("demo+nothere")


def test_every_list_and_item_is_there() -> None:
    variants = [
        target(f"{'deb' if name == 'check' else 'demo'}+{name}") for name in preparations.ADDITIONS
    ]
    for wanted in (*TARGETS.values(), *variants):
        assert all((ROOT / name).is_file() for name in (*wanted.lists, wanted.lock))
        known = {step.name for step in wanted.steps()}
        assert all({*step.after} <= known for step in wanted.steps()), (
            "a step waits for one that is not there"
        )


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, ""),
        ({"ID": "debian", "VERSION_ID": "13"}, ""),
        (
            {"ID": "debian", "VERSION_ID": "11", "PRETTY_NAME": "Debian 11"},
            "this machine runs Debian 11; Debian 12 or 13 is needed",
        ),
        (
            {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04 LTS"},
            "runs Ubuntu 24.04 LTS; Debian 12 or 13",
        ),
    ],
)
def test_another_system_is_told_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], wrong: str
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: facts)
    monkeypatch.setattr(requirements, "available_memory", lambda: 8 << 30)
    said = requirements.trouble(TARGETS["demo"])
    assert (
        (wrong in said and said.startswith("cannot prepare the demo: ") and "\n" not in said)
        if wrong
        else said == ""
    )


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (
            lambda m: m.setattr(requirements, "available_memory", lambda: 1 << 30),
            "1024 MiB of memory are available",
        ),
        (lambda m: m.setattr(os, "geteuid", lambda: 1000), "it needs root"),
        (lambda m: m.setattr(platform, "machine", lambda: "riscv64"), "this machine is riscv64"),
        (
            lambda m: m.setattr(shutil, "disk_usage", lambda path: type("", (), {"free": 1 << 20})),
            "1 MiB are free",
        ),
    ],
)
def test_a_small_machine_is_told_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], wrong: str
) -> None:
    change(monkeypatch)
    assert wrong in requirements.trouble(TARGETS["demo"])


def test_who_is_not_root_is_told_which_packages_a_simulation_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        platform, "freedesktop_os_release", lambda: {"ID": "debian", "VERSION_ID": "12"}
    )
    monkeypatch.setattr(
        requirements, "missing", lambda names: [name for name in names if name == "python3-venv"]
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = requirements.trouble(TARGETS["sim"])
    assert (
        said == "cannot prepare a simulation: python3-venv is not installed; "
        "as root: apt-get install python3-venv"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert requirements.trouble(TARGETS["sim"]) == "", "root installs them"


@pytest.mark.root
def test_what_a_killed_run_left_is_removed_and_what_runs_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    others = []
    for name in ("notes", "test", "abcdefgh", "another_one"):  # like a demo's, and none
        directory = tmp_path / f"{leftovers.DEMO_PREFIX}{name}"
        directory.mkdir()
        others.append(directory / "thesis.tex")
        others[-1].write_text("somebody's")
    old, mine = (
        tmp_path / f"{leftovers.DEMO_PREFIX}oldoldol",
        tmp_path / f"{leftovers.DEMO_PREFIX}mineming",
    )
    for directory in (old, mine):
        directory.mkdir()
    claim(mine / OWNER)
    with subprocess.Popen(["true"]) as ended:
        (old / OWNER).write_text(f"{ended.pid} 1")
    dead, lives = f"lc-{os.urandom(3).hex()}", f"lc-{os.urandom(3).hex()}"
    for name in (dead, lives):
        subprocess.run(["ip", "netns", "add", name], check=True)
    socket = Path(f"/run/{dead}-api.sock")
    socket.touch()
    inside = subprocess.Popen(["ip", "netns", "exec", dead, "sleep", "600"])
    hypervisor = subprocess.Popen(
        ["ip", "netns", "exec", lives, sys.executable, "-c", "input()", "vrack.hypervisor"],
        stdin=subprocess.PIPE,
    )
    try:
        while not netns.processes(lives) or not netns.processes(dead):
            pass
        removed = leftovers.remove(lambda seconds: None)
        assert any(dead in text for text in removed) and not any(lives in text for text in removed)
        assert inside.wait(patience(20)) in (-signal.SIGTERM, -signal.SIGKILL)
        assert not netns.exists(dead) and netns.exists(lives) and not socket.exists()
        assert mine.exists() and not old.exists()
        assert [file.read_text() for file in others] == ["somebody's"] * len(others)
    finally:
        hypervisor.communicate()
        inside.kill()
        netns.destroy(lives)


CHILD = "trap 'echo asked to end; exit 7' TERM; echo up; while :; do sleep 0.05; done"
PARENT = "import sys, prepare; sys.exit(prepare.run_after(['sh', '-c', sys.argv[1]]))"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_ends_with_what_prepared_it(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT / "vm-testbed",
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(number)
        assert parent.stdout.read() == "asked to end\n", "to its end: the child has closed it, too"
    assert parent.returncode == (7 if number is signal.SIGTERM else -signal.SIGKILL)


def test_ctrl_c_is_left_to_the_command(tmp_path: Path) -> None:
    """As from a terminal: both get it, and the command decides when it is over."""
    child = "trap 'echo tidying; exit 3' INT; echo up; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, child],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT / "vm-testbed",
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.read() == "tidying\n"
    assert parent.returncode == 3


@pytest.mark.parametrize("text", ["", "abc def", "1", "1 2 3", "999999999 1"])
def test_who_owns_something_is_read_with_care(tmp_path: Path, text: str) -> None:
    file = tmp_path / OWNER
    file.write_text(text)
    assert not owned(file)
    file.unlink()
    os.mkfifo(file)
    assert owned(file) is None, "nobody waits for what a stranger does not write"


def test_a_second_ctrl_c_does_not_stop_what_takes_down(runner: Runner) -> None:
    """The first ends the step; those that come while it ends change nothing."""

    def stubborn(shell: Shell) -> None:
        shell(
            "sh",
            "-c",
            "trap '' INT; trap 'sleep 0.3; exit' TERM; echo up; while :; do sleep 0.05; done",
        )

    def press() -> None:
        while not any(shell.detail == "up" for shell in runner.shells()):
            pass
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        runner.run([Step("stubborn", stubborn)])
    pressing.join()
    assert not any(shell.running for shell in runner.shells())


def test_two_makes_in_one_clone_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "LOCK", tmp_path / "lock")
    out = io.StringIO()
    with prepare.alone(Progress(out, Clock())):
        second = subprocess.Popen(
            [sys.executable, "-c", SECOND, str(tmp_path / "lock")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT / "vm-testbed",
        )
        assert second.stdout is not None
        assert "another `make` prepares this clone" in second.stdout.readline()
    assert second.communicate()[0].endswith("mine\n")
    assert out.getvalue() == ""


SECOND = """
import pathlib, prepare, progress, sys
prepare.LOCK = pathlib.Path(sys.argv[1])
with prepare.alone(progress.Progress()):
    print("mine")
"""
