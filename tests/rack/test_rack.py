"""The virtual rack itself: its BMCs start and kill real machines, and nothing of it stays
behind."""

from __future__ import annotations

import math
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patience
from vrack import netns, qemu
from vrack.rack import Rack, RackError
from vrack.spec import VmSpec

ROOT = Path(__file__).resolve().parents[2]

# A Redfish client of its own in a process of its own: sushy in its plain form.
SUSHY = """
import sys, sushy
root = sushy.Sushy(sys.argv[1], auth=sushy.auth.BasicAuth("admin", sys.stdin.read()), verify=sys.argv[2])
system = root.get_system_collection().get_members()[0]
if sys.argv[3] != "state":
    system.set_system_boot_options(target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.reset_system(sushy.ResetType(sys.argv[3]))
system.refresh(force=True)
print(system.power_state.value)
"""


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that name a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            if str(directory) in line:
                found.append(line)
    return found


def wait_for_nothing(directory: Path, namespace: str, limit_s: float = 60.0) -> None:
    """Waits until no process and no namespace of a rack is left."""
    end = time.monotonic() + patience(limit_s)
    while processes_of(directory) or netns.exists(namespace):
        assert time.monotonic() < end, (processes_of(directory), namespace)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """One BIOS machine with IPMI and one UEFI machine with Redfish."""
    with Rack(tmp_path_factory.mktemp("rack"), 2) as rack:
        yield rack


def tool(rack: Rack, *words: str) -> list[str]:
    """A foreign IPMI client at the BMC of n0."""
    assert rack.secrets is not None
    login = ["-H", rack.nodes[0].bmc_address, "-U", "admin", "-f", str(rack.secrets.password_file)]
    return ["ipmitool", "-I", "lanplus", "-C", "3", *login, *words]


def hear(terminal: int, what: bytes, limit_s: float = 60.0) -> None:
    """Reads a terminal until something was said there."""
    end, said = time.monotonic() + patience(limit_s), b""
    while what not in said:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, said
        said += os.read(terminal, 4096)


def ipmitool(rack: Rack, *words: str) -> str:
    """A foreign IPMI client's answer."""
    done = rack.run(tool(rack, *words))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def redfish(rack: Rack, action: str) -> str:
    """A foreign Redfish client's answer: the power state after an action, or "state"."""
    assert rack.secrets is not None
    url = f"https://{rack.nodes[1].bmc_address}:8000"
    command = rack.exec(
        [sys.executable, "-c", SUSHY, url, str(rack.secrets.certificate), action],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, problem = command.communicate(rack.secrets.password, timeout=60)
    assert command.returncode == 0, problem
    return str(out).strip()


@pytest.mark.vm
def test_ipmi_starts_and_kills_a_bios_machine(rack: Rack) -> None:
    assert ipmitool(rack, "power", "status") == "Chassis Power is off"
    assert not rack.vm_alive(0)
    ipmitool(rack, "chassis", "bootdev", "pxe")
    ours, its = pty.openpty()
    watching = rack.exec(tool(rack, "sol", "activate"), stdin=its, stdout=its, stderr=its)
    hear(ours, b"SOL Session operational")
    ipmitool(rack, "power", "on")
    assert ipmitool(rack, "power", "status") == "Chassis Power is on"
    assert rack.machine(0)["last_boot"] == "pxe"
    rack.wait_console(0, "iPXE", 60)
    hear(ours, b"iPXE")
    watching.kill()
    watching.wait()
    os.close(ours)
    os.close(its)
    ipmitool(rack, "power", "off")
    assert not rack.vm_alive(0)
    assert "iPXE" in rack.console(0)
    before = len(rack.console(0))
    ipmitool(rack, "power", "on")
    time.sleep(0.5)
    rack.kill_vm(0)
    assert ipmitool(rack, "power", "status") == "Chassis Power is off"
    assert len(rack.console(0)) >= before  # the console's file goes on over boots


@pytest.mark.vm
def test_redfish_starts_and_kills_a_uefi_machine(rack: Rack) -> None:
    assert redfish(rack, "state") == "Off"
    assert redfish(rack, "On") == "On"
    assert rack.vm_alive(1)
    rack.wait_console(1, "iPXE", 90)
    first = rack.machine(1)["pid"]
    assert redfish(rack, "ForceRestart") == "On"
    assert rack.machine(1)["pid"] != first
    rack.kill_vm(1)
    assert redfish(rack, "state") == "Off"


@pytest.mark.vm
def test_a_kvm_that_does_not_work_is_not_used() -> None:
    assert qemu.probe_s("tcg") < 60
    assert qemu.probe_s("no-such-accelerator") == math.inf
    assert qemu.pick_accel() in ("kvm", "tcg")


@pytest.mark.parametrize(("seconds", "picked"), [(0.2, "kvm"), (2.2, "tcg"), (math.inf, "tcg")])
def test_a_kvm_that_is_slower_than_the_emulator_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, picked: str
) -> None:
    def probe(accel: str, limit_s: float = 60.0) -> float:
        took = {"tcg": 0.15, "kvm": seconds}[accel]
        return took if took <= limit_s else math.inf

    monkeypatch.delenv("VRACK_ACCEL", raising=False)
    monkeypatch.setattr(qemu, "probe_s", probe)
    monkeypatch.setattr(qemu, "Path", lambda name: tmp_path)  # there is a /dev/kvm
    assert qemu.pick_accel.__wrapped__() == picked


def _light(*_: object) -> list[str]:
    return ["sleep", "1000000"]


@pytest.mark.root
def test_down_leaves_nothing(tmp_path: Path) -> None:
    handles = len(list(Path("/proc/self/fd").iterdir()))
    rack = Rack(tmp_path, 4, accel="tcg", command=_light)
    with rack:
        rack.exec(["sleep", "1000000"])
        redfish_on = redfish(rack, "On")
        ipmitool(rack, "power", "on")
        rack.pause_bmc(0)
        assert redfish_on == "On"
        assert netns.exists(rack.namespace)
        assert len(processes_of(tmp_path)) >= 4  # a hypervisor and two kinds of BMC at least
    assert netns.processes(rack.namespace) == []
    assert processes_of(tmp_path) == []
    assert not netns.exists(rack.namespace)
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    rack.down()


@pytest.mark.root
def test_an_exception_takes_the_rack_down(tmp_path: Path) -> None:
    rack = Rack(tmp_path, 1, accel="tcg", command=_light)
    with pytest.raises(ZeroDivisionError), rack:
        ipmitool(rack, "power", "on")
        raise ZeroDivisionError
    wait_for_nothing(tmp_path, rack.namespace)


@pytest.mark.root
def test_a_bmc_that_cannot_start_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    rack = Rack(tmp_path, [VmSpec(bmc_address="192.0.2.1")], accel="tcg", command=_light)
    with pytest.raises(RackError, match="cannot start the BMC of n0"):
        rack.up()
    wait_for_nothing(tmp_path, rack.namespace)


@pytest.mark.root
def test_a_killed_hypervisor_takes_everything_with_it(tmp_path: Path) -> None:
    with Rack(tmp_path, 1, accel="tcg", command=_light) as rack:
        ipmitool(rack, "power", "on")
        machine = rack.machine(0)["pid"]
        hypervisor = int(Path(f"/proc/{machine}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(hypervisor, signal.SIGKILL)
        end = time.monotonic() + patience(60)
        while netns.processes(rack.namespace):
            assert time.monotonic() < end
            time.sleep(0.02)
    wait_for_nothing(tmp_path, rack.namespace)


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_line_holds_a_rack_up_until_it_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "vm-testbed"), "VRACK_ACCEL": "tcg"}
    command = subprocess.Popen(
        [sys.executable, "-m", "vrack", "up", str(tmp_path), "--nodes", "2"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    with command, command.stdout as out:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("up;"):
            lines.append(out.readline())
            assert lines[-1], "it ended too soon"
        namespace = lines[0].split()[1]
        assert netns.exists(namespace)
        shown = subprocess.run(
            [sys.executable, "-m", "vrack", "inventory", str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "10.98.1.11" in shown.stdout
        command.send_signal(number)
        assert command.wait(20) == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    wait_for_nothing(tmp_path, namespace)


@pytest.mark.root
def test_a_cable_is_pulled_and_put_back(tmp_path: Path) -> None:
    with Rack(tmp_path, 1, accel="tcg", command=_light) as rack:

        def up() -> bool:
            return "UP" in rack.run(["ip", "-o", "link", "show", "dev", "tap0"]).stdout.split("<")[
                1
            ].split(">")[0].split(",")

        assert up()
        rack.unplug(0)
        assert not up()
        rack.plug(0)
        assert up()
